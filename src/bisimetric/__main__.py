"""`python -m bisimetric`: the command line, also where scripts are not on the path."""

from bisimetric_command import main

if __name__ == "__main__":
    main()
