import glob, json, os, sys
try:
    from importlib import metadata
except ImportError:
    metadata = None
packages = {}
for name in sys.argv[1:]:
    try:
        packages[name] = metadata.version(name)
    except Exception:
        pass
cupti = []
for folder in sys.path:
    cupti += glob.glob(os.path.join(folder, 'nvidia', '*', 'lib', 'libcupti.so*'))
print(json.dumps({'executable': sys.executable, 'version': '%d.%d.%d' % sys.version_info[:3],
                  'packages': packages, 'cupti': sorted(set(cupti))}))
