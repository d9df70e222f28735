import sys

# nbformat's validator would build a grammar of addresses, which no notebook has, for two seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
