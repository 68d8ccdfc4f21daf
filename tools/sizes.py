"""Prints the number of lines of each package and the longest files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "packages"


def main() -> None:
    counts = {p: len(p.read_text().splitlines()) for p in ROOT.glob("*/src/**/*.py")}
    counts |= {p: len(p.read_text().splitlines()) for p in ROOT.glob("*/csrc/*.[ch]")}
    for package in sorted({p.relative_to(ROOT).parts[0] for p in counts}):
        print(f"{sum(n for p, n in counts.items() if p.relative_to(ROOT).parts[0] == package):7} {package}")
    print(f"{sum(counts.values()):7} in all\n")
    for path, lines in sorted(counts.items(), key=lambda row: -row[1])[:15]:
        print(f"{lines:7} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
