"""The colours of every figure, and nothing else, because pages without matplotlib use them."""

# Each family has its own colours, which a colour-blind reader can tell apart: brokers have those of
# Okabe and Ito, states muted ones, series Paul Tol's, versions `GENERATIONS`. Vermilion marks
# losses, absences and false alarms, and a formula beside measurements.
BLUE, ORANGE, GREEN, PINK, BROWN = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#6B4423"
SKY, VERMILION = "#56B4E9", "#D55E00"
INK, GREY, PALE, FAINT, WHITE = "#333333", "#8A9BA8", "#DDDDDD", "#F1F3F4", "#FFFFFF"
DARK = {
    WHITE: "#1B2129",
    FAINT: "#28313C",
    INK: "#DDE3EA",
    BLUE: "#5AAEE6",
    GREY: "#93A0B0",
}  # on a dark page
AS_TEXT = {ORANGE: "#8A5F00", GREEN: "#00724F", PINK: "#9C3F73", GREY: "#5A6874"}  # on white
LOST, AS_TEXT[VERMILION] = VERMILION, "#B04A00"
SERIES = ("#332288", "#DDAA33", "#44AA99", "#882255", "#88CCEE", "#999933")  # of other lines

STATES = {
    "leads": "#2F4B7C",
    "in sync": "#7FB8A4",
    "out": VERMILION,
    "stale": "#E3C567",  # acts on outdated information
    "waits": "#9CC3D5",
    "away": "#666666",  # a broker that is down or does not answer
    "not known": "#EEEEEE",
    "false alarm": VERMILION,
    "real": GREY,
    "was": GREY,
    "now": "#2F4B7C",
    "measured": "#2F4B7C",
    "formula": VERMILION,
}
ISR_SIZES = {  # of a partition, by how many replicas are missing
    "full ISR": "#CFE3F2",
    "one missing": "#F3E79B",
    "more missing": "#EBB07A",
    "one copy left": VERMILION,
}
OUTCOMES = {
    "safe": "#C7E9DC",
    "lost": "#F6C28B",
    "diverged": "#E58A8A",
    "offline": "#D9D9D9",
    "stalled": "#CFC3E6",
    "flapping": "#F3E79B",
}
BROKERS = (BLUE, ORANGE, GREEN, PINK, BROWN)  # they repeat: broker 6 looks like broker 1
GENERATIONS = (  # oldest first; neighbours differ in lightness, also without red or green
    # leaders write ZooKeeper themselves: warm to green
    "#601C2B", "#F5917B", "#9B6107", "#B79B14", "#4B5101", "#A0D20C", "#4C8E67", "#09DCBC",
    # leaders ask the controller: blue to purple
    "#04698A", "#76BBF5", "#1537B0", "#5676F4", "#510179", "#AC7FB5", "#AA195E", "#F3B0CB",
)  # fmt: skip


def broker_colour(broker: int) -> str:
    return BROKERS[(broker - 1) % len(BROKERS)]
