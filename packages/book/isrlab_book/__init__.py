"""isrlab for who learns: the notebooks' own code, the explorer, the playground, the exercises.

In a notebook, `%load_ext isrlab_book.magic` brings cells that begin with `%%scenario` or
`%%exercise`. Tab completes what may stand there, `%%scenario?` lists the commands.

Explorer         a scenario whose next step the reader takes: Explorer(text, ["4.3"])
DecisionCurves   how a scenario's chance of a loss changes, with a player
my_release       the release that a lesson is about; how_it_was says how another one differs
against_engine   a reader's rule beside the engine's
show_first_page, show_questions, show_exercises   what 00_start_here leads to
marked           the line that says whether numbers solve an exercise
"""

from isrlab import exports

_PLACES = {
    "Explorer": "explorer.explorer:Explorer", "DecisionCurves": "explorer.decided:DecisionCurves",
    "my_release": "lesson:my_release", "how_it_was": "lesson:how_it_was",
    "against_engine": "lesson:against_engine", "marked": "exercise:marked",
    "show_first_page": "page.landing:show_first_page",
    "show_questions": "page.landing:show_questions",
    "show_exercises": "page.landing:show_exercises",
}  # fmt: skip
__all__ = [*_PLACES]
__getattr__ = exports(__name__, _PLACES)
