"""Fetch the JavaScript that pages ship, or check that it is what was released: python tools/vendor.py [--check].

`vendored.json` says which release of each package, and the hash of each file taken from it. Fetching needs npm and
unpacks the package that it gives; --check compares the files in the tree with the released ones, byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "src" / "bisimetric" / "pages" / "assets" / "vendor"


def released(package: str, version: str) -> dict[str, bytes]:
    """The files of a release, by their path in it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            members = [member for member in tar.getmembers() if member.isfile()]
            return {m.name.removeprefix("package/"): tar.extractfile(m).read() for m in members}  # type: ignore[union-attr]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    listed = FOLDER / "vendored.json"
    known = json.loads(listed.read_text())
    wrong = 0
    for package, facts in known.items():
        files = released(package, facts["version"])
        for name, entry in facts["files"].items():
            content = files[entry["from"]]
            digest = hashlib.sha256(content).hexdigest()
            if check:
                same = digest == entry["sha256"] and (FOLDER / name).read_bytes() == content
                wrong += not same
                print(f"{package} {facts['version']} {name}: {'as released' if same else 'DIFFERS'}")
            else:
                (FOLDER / name).write_bytes(content)
                entry["sha256"] = digest
    if not check:
        listed.write_text(json.dumps(known, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
