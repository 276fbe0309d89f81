"""Run the accuracy of segments; their speed is ``python -m benchmarks.segments.speed``."""

from benchmarks.segments.accuracy import main

if __name__ == "__main__":
    main()
