package track

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Progress shows the progress of a run: a line that is redrawn on a terminal, or plain lines at
// intervals elsewhere.
type Progress struct {
	to   io.Writer
	o    ProgressOptions
	from time.Time

	first, done int
	tokens      int64
	loss        float64
	shown       time.Time
	width       int // of the line in the terminal
}

// ProgressOptions configure [NewProgress]. Only Total is required.
type ProgressOptions struct {
	// Total is the number of steps. 0 means unknown.
	Total int
	// Unit is the unit that Update counts. Empty means "tok".
	Unit string
	// Terminal redraws one line. [IsTerminal] reports whether a file supports that.
	Terminal bool
	// Width is the maximum length of a line. 0 means 79 characters.
	Width int
	// Every is the minimum time between two drawings. 0 means a tenth of a second on a terminal,
	// else five seconds.
	Every time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0
}

// NewProgress shows progress on a writer. The clock starts now.
func NewProgress(to io.Writer, o ProgressOptions) *Progress {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Unit == "" {
		o.Unit = "tok"
	}
	if o.Width <= 0 {
		o.Width = 79
	}
	if o.Every == 0 {
		o.Every = 5 * time.Second
		if o.Terminal {
			o.Every = 100 * time.Millisecond
		}
	}
	return &Progress{to: to, o: o, from: o.Now(), loss: math.NaN()}
}

// Begin sets the step at which the run starts. The remaining time is estimated from there.
func (p *Progress) Begin(step int) {
	p.first, p.done = step, step
	p.from, p.tokens = p.o.Now(), 0
}

// Update reports that done steps are finished, the loss of the last one (NaN for none), and how
// many units were processed since the last call.
func (p *Progress) Update(done int, loss float64, units int) {
	p.done, p.loss = done, loss
	p.tokens += int64(units)
	now := p.o.Now()
	if now.Sub(p.shown) >= p.o.Every || !p.o.Terminal && done == p.o.Total {
		p.shown = now
		p.draw(now)
	}
}

// Close draws the final state and ends the line.
func (p *Progress) Close() {
	if p.o.Terminal {
		p.draw(p.o.Now())
		fmt.Fprintln(p.to)
	}
}

// Clear removes the line, so that other text can be written. The next Update draws it again.
func (p *Progress) Clear() {
	if p.o.Terminal && p.width > 0 {
		fmt.Fprintf(p.to, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
		p.shown = time.Time{}
	}
}

func (p *Progress) draw(now time.Time) {
	text := p.line(now)
	if !p.o.Terminal {
		fmt.Fprintln(p.to, text)
		return
	}
	n := utf8.RuneCountInString(text)
	fmt.Fprintf(p.to, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-n)))
	p.width = n
}

// line returns "12/100 ━━━━━─────  12% loss 2.3456 1234 tok/s 0:42 left".
func (p *Progress) line(now time.Time) string {
	head := fmt.Sprint(p.done)
	if p.o.Total > 0 {
		head = fmt.Sprintf("%d/%d", p.done, p.o.Total)
	}
	var tail strings.Builder
	if p.o.Total > 0 {
		fmt.Fprintf(&tail, " %3d%%", int(p.part()*100))
	}
	if !math.IsNaN(p.loss) {
		fmt.Fprintf(&tail, " loss %.4f", p.loss)
	}
	passed := now.Sub(p.from)
	if p.tokens > 0 && passed > 0 {
		fmt.Fprintf(&tail, " %s %s/s", rate(float64(p.tokens)/passed.Seconds()), p.o.Unit)
	}
	if steps := p.done - p.first; p.o.Total > p.done && steps > 0 {
		left := time.Duration(float64(passed) / float64(steps) * float64(p.o.Total-p.done))
		fmt.Fprintf(&tail, " %s left", clock(left))
	} else {
		fmt.Fprintf(&tail, " %s", clock(passed))
	}
	room := p.o.Width - len(head) - tail.Len() - 1
	if p.o.Total <= 0 || !p.o.Terminal || room < 8 {
		return head + tail.String()
	}
	return head + " " + bar(min(room, 40), p.part()) + tail.String()
}

func (p *Progress) part() float64 {
	return min(1, max(0, float64(p.done)/float64(max(1, p.o.Total))))
}

// bar returns a bar of n characters, with the given part of them heavy.
func bar(n int, part float64) string {
	full := int(part*float64(n) + 0.5)
	return strings.Repeat("━", full) + strings.Repeat("─", n-full)
}

// rate formats a number with at least three digits.
func rate(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e5:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// clock formats minutes and seconds, and hours if there are any.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
