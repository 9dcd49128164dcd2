import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests import engines  # noqa: E402
from tests.fakes import write_packages  # noqa: E402
from tests.program import ProgramCase  # noqa: E402

START = """
import torch.distributed as dist
from torch.distributed.distributed_c10d import Group, ProcessGroupNCCL, Tensor
dist.init_process_group("gloo")
"""
WORLD = "! roofgap.group rank=1 world=8 name=0 size=4 ranks=0-2,5 desc=default_pg"


class DistributedTest(ProgramCase):
    def setUp(self):
        super().setUp()
        for packages in (engines.TORCH, engines.DISTRIBUTED):
            write_packages(self.packages, packages)

    def lines(self, program, **environment):
        done = self.run_program(START + program, **environment)
        self.assertEqual(done.stderr, "")
        self.output = done.stdout
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_a_collective_is_one_range_with_its_bytes_and_number(self):
        lines = self.lines(
            "print(dist.all_reduce(Tensor(1000)))\n"
            "dist.all_gather([Tensor(10)] * 4, Tensor(10))\n"
            "dist.all_reduce(Tensor(8, 2), async_op=True)\n"
        )
        self.assertEqual(self.output, "reduced\n")
        group = "group=0 desc=default_pg size=4"
        expected = [
            f"roofgap.collective all_reduce {group} in=4000 out=4000 on=host wait=1 seq=0",
            f"roofgap.collective all_gather {group} in=40 out=160 on=host wait=1 seq=1",
            f"roofgap.collective all_reduce {group} in=16 out=16 on=host wait=0 seq=2",
        ]
        self.assertEqual(lines, [WORLD] + [line for name in expected for line in (name, "/")])

    def test_transfers_name_the_other_rank_and_count_for_each_pair(self):
        lines = self.lines(
            "dist.send(Tensor(3), dst=2)\ndist.recv(Tensor(3), src=0)\ndist.isend(Tensor(3), group_dst=3)\ndist.send(Tensor(3), 2)\n"
        )
        group = "group=0 desc=default_pg size=4"
        self.assertEqual(
            lines[1::2],
            [
                f"roofgap.collective send {group} in=12 on=host wait=1 peer=2 seq=0",
                f"roofgap.collective recv {group} out=12 on=host wait=1 peer=0 seq=0",
                f"roofgap.collective send {group} in=12 on=host wait=0 peer=5 seq=0",
                f"roofgap.collective send {group} in=12 on=host wait=1 peer=2 seq=1",
            ],
        )

    def test_a_group_is_marked_at_its_first_collective(self):
        lines = self.lines(
            "tensor = Group('7', 'mesh tp', [1, 2], ProcessGroupNCCL)\n"
            "dist.all_reduce(Tensor(1), group=tensor)\n"
            "dist.all_reduce(Tensor(1), group=tensor)\n"
            "dist.all_reduce(Tensor(1), group=-100)\n"
        )
        call = "roofgap.collective all_reduce group=7 desc=mesh_tp size=2 in=4 out=4 on=device wait=1"
        self.assertEqual(
            lines,
            [WORLD, "! roofgap.group rank=1 world=8 name=7 size=2 ranks=1-2 desc=mesh_tp", f"{call} seq=0", "/", f"{call} seq=1", "/"],
        )

    def test_errors_of_the_program_pass_and_the_range_ends(self):
        lines = self.lines("try:\n    dist.barrier()\nexcept RuntimeError as error:\n    print(error)\ndist.all_reduce(Tensor(1))\n")
        self.assertEqual(self.output, "timeout\n")
        self.assertEqual(lines[1], "roofgap.collective barrier group=0 desc=default_pg size=4 on=host wait=1 seq=0")
        self.assertEqual((lines[2], len(lines)), ("/", 5))

    def ranges_under_ncu(self, wanted, **launcher):
        lines = self.lines("", ROOFGAP_PHASE="counters", ROOFGAP_COUNTERS_RANK=wanted, **launcher)
        os.remove(self.log)
        return [line for line in lines if line[0] in "[]"]

    def test_ncu_can_leave_out_all_ranks_but_one(self):
        # The process group is rank 1 of 8.
        self.assertEqual(self.ranges_under_ncu("1"), ["[ roofgap.counters rank=1 world=8"])
        self.assertEqual(self.ranges_under_ncu("0"), ["[ roofgap.other_rank"])
        self.assertEqual(self.ranges_under_ncu("0", RANK="1", WORLD_SIZE="8"), ["[ roofgap.other_rank"])
        # A launcher of one process tells nothing, and the process group knows better than another launcher.
        self.assertEqual(self.ranges_under_ncu("1", RANK="0", WORLD_SIZE="1"), ["[ roofgap.counters rank=1 world=8"])
        self.assertEqual(
            self.ranges_under_ncu("1", PMI_RANK="3", PMI_SIZE="4"),
            ["[ roofgap.other_rank", "[ roofgap.counters rank=1 world=8", "] roofgap.other_rank"],
        )
        self.assertEqual(self.ranges_under_ncu(""), [])

    def test_nothing_is_written_without_a_profiler(self):
        self.assertEqual(self.lines("print(dist.all_reduce(Tensor(1)))\n", ROOFGAP_PHASE="baseline"), [])
        self.assertEqual(self.output, "reduced\n")


if __name__ == "__main__":
    unittest.main()
