"""isrlab for who learns: the notebooks' own code, the explorer, the playground, the exercises."""
