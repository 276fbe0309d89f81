"""Make ``python -m gpudemand`` the command line."""

from gpudemand.cli import main

if __name__ == "__main__":
    main()
