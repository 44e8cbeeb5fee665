package devicemap

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Render draws the plan for a terminal of the given width in columns. It draws a row of cells for
// each series of blocks, one cell per block, marked by its device, then a table of the devices
// with a bar of their contents. With color the marks are coloured by tier. It omits the
// warnings and the text of [Plan.ExplainPaths], which the caller prints. The error is that of w.
func (p Plan) Render(w io.Writer, color bool, width int) error {
	r := &renderer{w: bufio.NewWriter(w), color: color, width: max(width, 40)}
	r.legend(p.Map.Devices())
	r.blocks(p.series())
	r.devices(p)
	return r.w.Flush()
}

type renderer struct {
	w     *bufio.Writer
	color bool
	width int
}

// gpuColors are the colours of accelerators.
var gpuColors = []string{"32", "36", "35", "92", "96", "95"}

// mark returns the cell of a device: a GPU's last digit, or a block character shaded by tier.
func (r *renderer) mark(d Device, n int) string {
	switch d {
	case CPU:
		return r.paint(strings.Repeat("▓", n), "34")
	case Disk:
		return r.paint(strings.Repeat("░", n), "33")
	}
	i, _ := d.GPU()
	if r.color {
		return r.paint(strings.Repeat("█", n), gpuColors[uint(i)%uint(len(gpuColors))])
	}
	if d == MPS {
		return strings.Repeat("█", n)
	}
	return strings.Repeat(string(d)[len(d)-1:], n)
}

func (r *renderer) paint(text, code string) string {
	if !r.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (r *renderer) legend(devices []Device) {
	for i, d := range devices {
		if i > 0 {
			fmt.Fprint(r.w, "   ")
		}
		fmt.Fprintf(r.w, "%s %s", r.mark(d, 1), d)
	}
	fmt.Fprint(r.w, "\n\n")
}

// blocks draws the cells of each series.
func (r *renderer) blocks(list []*series) {
	names := make([]string, len(list))
	column := 0
	for i, s := range list {
		names[i] = s.name(s.cells[0].number, s.cells[len(s.cells)-1].number)
		column = max(column, min(utf8.RuneCountInString(names[i]), r.width/2))
	}
	for i, s := range list {
		fmt.Fprint(r.w, pad(names[i], column))
		room := max(8, r.width-column-2)
		for at := 0; at < len(s.cells); {
			fmt.Fprint(r.w, "  ")
			line := s.cells[at:min(at+room, len(s.cells))]
			at += len(line)
			r.cells(line)
			fmt.Fprintln(r.w)
			if at < len(s.cells) {
				fmt.Fprint(r.w, pad("", column))
			}
		}
	}
	fmt.Fprintln(r.w)
}

// cells draws one line. It paints runs of one device at once.
func (r *renderer) cells(line []cell) {
	for len(line) > 0 {
		n := 1
		for n < len(line) && line[n].device == line[0].device {
			n++
		}
		fmt.Fprint(r.w, r.mark(line[0].device, n))
		line = line[n:]
	}
}

// devices draws the table of memory.
func (r *renderer) devices(p Plan) {
	serves := slices.ContainsFunc(p.Devices, func(d DevicePlan) bool { return d.RequestBytes+d.RuntimeBytes > 0 })
	rest := func(requests, runtime, free string) string { // the last columns
		if !serves {
			return fmt.Sprintf("%10s\n", free)
		}
		return fmt.Sprintf("%10s%10s%10s\n", requests, runtime, free)
	}
	fmt.Fprintf(r.w, "%-8s%10s%10s%10s%12s%10s%s", "device", "limit", "weights", "kv", "activations", "staging", rest("requests", "runtime", "free"))
	for _, d := range p.Devices {
		limit, free := "-", "-"
		if d.Device != Disk {
			limit, free = FormatSize(d.LimitBytes), FormatSize(d.LimitBytes-d.Used())
		}
		fmt.Fprintf(r.w, "%-8s%10s%10s%10s%12s%10s%s", d.Device, limit, FormatSize(d.WeightsBytes),
			FormatSize(d.KVBytes), FormatSize(d.ActivationBytes), FormatSize(d.StagingBytes),
			rest(FormatSize(d.RequestBytes), FormatSize(d.RuntimeBytes), free))
		if d.Device != Disk && d.LimitBytes > 0 {
			fmt.Fprintf(r.w, "        %s\n", r.bar(d, min(r.width, 70)-10))
		}
	}
}

// bar draws the contents of a device: weights with the device's own mark, then k for the KV
// cache, a for activations, s for staging, r for requests and the runtime. The bar ends at the
// limit.
func (r *renderer) bar(d DevicePlan, width int) string {
	var b strings.Builder
	used, drawn := int64(0), 0
	for _, part := range []struct {
		bytes int64
		mark  func(n int) string
	}{
		{d.WeightsBytes, func(n int) string { return r.mark(d.Device, n) }},
		{d.KVBytes, func(n int) string { return r.paint(strings.Repeat("k", n), "35") }},
		{d.ActivationBytes, func(n int) string { return r.paint(strings.Repeat("a", n), "36") }},
		{d.StagingBytes, func(n int) string { return r.paint(strings.Repeat("s", n), "33") }},
		{d.RequestBytes + d.RuntimeBytes, func(n int) string { return r.paint(strings.Repeat("r", n), "32") }},
	} {
		used += part.bytes
		to := min(width, int(float64(used)/float64(d.LimitBytes)*float64(width)+0.5))
		if to > drawn {
			b.WriteString(part.mark(to - drawn))
			drawn = to
		}
	}
	return "[" + b.String() + strings.Repeat(" ", width-drawn) + "]"
}

// pad pads text with spaces to n columns, or shortens its middle.
func pad(text string, n int) string {
	count := utf8.RuneCountInString(text)
	if count <= n {
		return text + strings.Repeat(" ", n-count)
	}
	runes := []rune(text)
	head := (n - 1) / 2
	return string(runes[:head]) + "…" + string(runes[count-(n-1-head):])
}
