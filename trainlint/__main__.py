"""`python -m trainlint`"""

from trainlint.cli import main

if __name__ == "__main__":
    main()
