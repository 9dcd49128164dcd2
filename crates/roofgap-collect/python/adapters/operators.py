"""torch.profiler around some launches of an unmodified program: its operators with their shapes, written to `ROOFGAP_TORCH_TRACE`.

`ROOFGAP_LAUNCHES=FIRST-LAST` counts kernels and graphs that the process has launched. Where nothing counts them, the profiler runs for
`ROOFGAP_SECONDS` from the initialization of CUDA on. Notes for the session are lines of the file beside the trace.
"""

import atexit
import ctypes
import os
import sys
import threading
import time

INTERVAL = 0.001


class Window:
    """The launches to record, in this process."""

    def __init__(self, path, first, last, seconds):
        self.path = path
        self.first, self.last, self.seconds = first, last, seconds
        self.count = counter()
        self.profiler = self.deadline = self.prepare = None
        self.done = self.asked = False
        self.call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.turn)
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self.in_child)
        self.watch()

    def watch(self):
        threading.Thread(target=self.poll, name="roofgap", daemon=True).start()

    def in_child(self):
        # The profiler of a parent is not that of its child.
        if self.profiler is not None:
            self.done = True
        if not self.done:
            self.asked = False
            self.watch()

    def poll(self):
        """Asks the main thread for a turn when one is due: the profiler has to start and stop where operators are called."""
        while not self.done:
            time.sleep(INTERVAL)
            if not self.asked and self.is_due():
                self.asked = True
                if ctypes.pythonapi.Py_AddPendingCall(self.call, None) != 0:
                    self.asked = False

    def is_due(self):
        torch = sys.modules.get("torch")
        if not hasattr(torch, "profiler") or not torch.cuda.is_initialized():
            return False
        if self.count is None:
            return self.profiler is None or time.monotonic() > self.deadline
        return self.count() >= (self.first if self.profiler is None else self.last)

    def turn(self, _):
        try:
            # During the capture of a graph the profiler could not wait for the device.
            if not self.done and self.is_due() and not sys.modules["torch"].cuda.is_current_stream_capturing():
                self.start() if self.profiler is None else self.stop()
        except BaseException as error:
            self.done = True
            self.note(f"torch.profiler failed: {type(error).__name__}: {error}")
        self.asked = False
        return 0

    def start(self):
        torch = sys.modules["torch"]
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            # Another process records.
            self.done = True
            return
        kinds = torch.profiler.ProfilerActivity
        options = {"activities": [kinds.CPU, kinds.CUDA], "record_shapes": True}
        try:
            threads = torch.profiler._ExperimentalConfig(profile_all_threads=True)
            profiler = torch.profiler.profile(experimental_config=threads, **options)
        except (AttributeError, TypeError):
            profiler = torch.profiler.profile(**options)
        profiler.start()
        self.profiler, self.deadline = profiler, time.monotonic() + self.seconds
        self.begun = self.count() if self.count is not None else None
        self.give_way(torch.autograd.profiler.profile)
        try:
            matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        except Exception:
            # A program that sets the precision in torch's newer way cannot be asked in the older.
            return
        with torch.profiler.record_function(f"roofgap.tf32 matmul={int(matmul)} convolution={int(convolution)}"):
            pass

    def give_way(self, kind):
        """Stops when the program starts a profiler of its own: there can be only one."""
        self.kind, self.prepare = kind, kind._prepare_trace

        def prepare(profiler, *arguments, **keywords):
            if not self.done:
                try:
                    self.note("the program started torch.profiler itself")
                    self.stop()
                except Exception as error:
                    self.note(f"torch.profiler failed: {type(error).__name__}: {error}")
            return self.prepare(profiler, *arguments, **keywords)

        kind._prepare_trace = prepare

    def stop(self):
        self.done = True
        if self.prepare is not None:
            self.kind._prepare_trace = self.prepare
        self.profiler.stop()
        if self.count is not None:
            what = f"launches {self.begun} to {self.count()}"
        else:
            what = f"at most {self.seconds:g} s after CUDA began, for nothing counted launches,"
        part = os.path.join(os.path.dirname(self.path), ".part.json.gz")
        self.profiler.export_chrome_trace(part)
        os.replace(part, self.path)
        self.note(f"torch.profiler recorded {what} of process {os.getpid()}")

    def end(self):
        """Writes what there is when the program ends before the last launch."""
        if self.done:
            return
        try:
            if self.profiler is not None:
                self.stop()
            elif self.count is not None and self.count() > 0:
                self.note(f"process {os.getpid()} ended after {self.count()} launches, before launch {self.first}")
        except BaseException as error:
            self.note(f"torch.profiler failed: {type(error).__name__}: {error}")
        self.done = True

    def note(self, text):
        try:
            with open(os.path.join(os.path.dirname(self.path), "notes.log"), "a", encoding="utf-8") as file:
                file.write(" ".join(text.split()) + "\n")
        except OSError:
            pass


def counter():
    """Returns the function that counts launches, of the library that is loaded before the program."""
    try:
        count = ctypes.CDLL(None).roofgap_launch_count
    except (AttributeError, OSError):
        return None
    count.restype = ctypes.c_uint64
    return count


def after_import(_):
    """Waits for the launches."""
    first, _, last = os.environ["ROOFGAP_LAUNCHES"].partition("-")
    Window(os.environ["ROOFGAP_TORCH_TRACE"], int(first), int(last), float(os.environ["ROOFGAP_SECONDS"]))
