"""Draws the ratios of a comparison as an SVG bar chart. The dashed line at 1× is a draw."""

from xml.sax.saxutils import escape

WIDTH = 860
LABEL_WIDTH = 350
RIGHT_MARGIN = 60
TOP = 64
BAR_HEIGHT = 13
BAR_GAP = 2
ROW_GAP = 12
COLORS = {"llama.cpp": "#2f6db3", "OpenVINO": "#d98b2b"}
FONT = 'font-family="sans-serif" font-size="12"'


def bar_rows(rows, samples, ours, peers):
    """(title, [(peer, ratio)]) of the rows that have a ratio."""
    result = []
    for row in rows:
        ratios = [(peer, samples.ratio(row.name, ours, peer)) for peer in peers]
        ratios = [(peer, ratio) for peer, ratio in ratios if ratio is not None]
        if ratios:
            result.append((row.title, ratios))
    return result


def axis_step(highest):
    """Between the lines of the axis, so that there are at most about ten."""
    for step in (0.5, 1, 2, 5, 10, 20, 50):
        if highest / step <= 10:
            return step
    return 100


def text(x, y, words, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {FONT} {extra}>{escape(words)}</text>'


def legend(peers):
    parts, x = [], LABEL_WIDTH
    for peer in peers:
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{COLORS[peer]}"/>')
        parts.append(text(x + 18, 41, f"times {peer}"))
        x += 150
    return parts


def vertical_line(ratio, scale, bottom, stroke):
    x = LABEL_WIDTH + ratio * scale
    return f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" {stroke}/>'


def axis(highest, scale, bottom):
    """Lines at round ratios, with the ratios below."""
    parts, step, ratio = [], axis_step(highest), 0.0
    while ratio <= highest:
        parts.append(vertical_line(ratio, scale, bottom, 'stroke="#e2e2e2"'))
        x = LABEL_WIDTH + ratio * scale
        parts.append(text(x, bottom + 16, f"{ratio:g}×", 'text-anchor="middle" fill="#555"'))
        ratio += step
    return parts


def bars(rows, scale):
    parts, y = [], TOP
    for title, ratios in rows:
        height = len(ratios) * (BAR_HEIGHT + BAR_GAP)
        parts.append(text(LABEL_WIDTH - 10, y + height / 2 + 3, title, 'text-anchor="end"'))
        for peer, ratio in ratios:
            width = ratio * scale
            parts.append(f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" '
                         f'height="{BAR_HEIGHT}" fill="{COLORS[peer]}"/>')
            parts.append(text(LABEL_WIDTH + width + 5, y + BAR_HEIGHT - 2, f"{ratio:.2f}×"))
            y += BAR_HEIGHT + BAR_GAP
        y += ROW_GAP
    return parts, y


def draw(title, rows):
    """The SVG of rows as bar_rows gives them."""
    highest = max((ratio for _, ratios in rows for _, ratio in ratios), default=1.0)
    highest = max(highest, 1.0) * 1.02
    scale = (WIDTH - LABEL_WIDTH - RIGHT_MARGIN) / highest
    drawn, bottom = bars(rows, scale)
    peers = [peer for peer in COLORS if any(peer == p for _, ratios in rows for p, _ in ratios)]
    height = bottom + 28
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(10, 20, title, 'font-weight="bold"'),
        *legend(peers),
        *axis(highest, scale, bottom),
        *drawn,
        vertical_line(1, scale, bottom, 'stroke="#222" stroke-dasharray="4 3"'),
        "</svg>",
    ]) + "\n"
