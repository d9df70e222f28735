"""isrlab for who learns: the notebooks' own code, the explorer, the playground, the exercises.

In a notebook, `%load_ext isrlab_book.magic` brings cells that begin with `%%scenario` or
`%%exercise`. Tab completes what may stand there, `%%scenario?` lists the commands.
"""
