"""Word count by other tools, each as a program: ``python -m benchmarks.peers.NAME TEXT OUT``.

Each reads lines of ASCII text, uses two threads, and writes ``word<TAB>count`` into the file OUT,
or into files in the folder OUT, in any order. A word is what ``[\\w']+`` finds in a line in lower
case.
"""
