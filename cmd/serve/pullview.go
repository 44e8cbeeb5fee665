package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
)

// A pullView shows the progress of a pull: on a terminal a bar for each file in transfer and one
// for the total, elsewhere a line for each finished file and one from time to time.
type pullView struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	active []hub.Progress // files in transfer, in the order of their start
	all    hub.Progress
	bars   int // lines of bars on the terminal now
	drawn  time.Time
	rate   float64 // bytes per second, a moving average
	since  time.Time
	before int64 // bytes transferred before since
}

// Intervals of redrawing a terminal and of lines elsewhere.
const (
	redraw = 100 * time.Millisecond
	report = 10 * time.Second
)

func newPullView(out cmdline.Diagnostics) *pullView {
	v := &pullView{out: out, now: time.Now}
	v.terminal, _ = terminal(cmdline.Output(out))
	v.since = v.now()
	v.drawn = v.since
	return v
}

// tell processes a progress event. Calls must not be concurrent.
func (v *pullView) tell(p hub.Progress) {
	v.all = p
	now := v.now()
	if d := now.Sub(v.since); d >= time.Second {
		rate := float64(p.Fetched-v.before) / d.Seconds()
		if v.rate > 0 {
			rate = 0.6*v.rate + 0.4*rate
		}
		v.rate, v.since, v.before = rate, now, p.Fetched
	}
	if p.Done == p.Total {
		v.done(p)
		return
	}
	v.set(p)
	interval := report
	if v.terminal {
		interval = redraw
	}
	if now.Sub(v.drawn) >= interval {
		v.drawn = now
		v.draw()
	}
}

func (v *pullView) set(p hub.Progress) {
	for i := range v.active {
		if v.active[i].File == p.File {
			v.active[i] = p
			return
		}
	}
	v.active = append(v.active, p)
}

// done writes the line of a completely transferred file, once.
func (v *pullView) done(p hub.Progress) {
	kept, was := v.active[:0], false
	for _, a := range v.active {
		if a.File == p.File {
			was = true
			continue
		}
		kept = append(kept, a)
	}
	v.active = kept
	if !was {
		return // it was cached, or arrived with its hash in one event
	}
	v.erase()
	fmt.Fprintf(v.out, "%s  %s\n", shown(p.File), gib(p.Total))
	if v.terminal {
		v.draw()
	}
}

// end removes the bars and prints a summary.
func (v *pullView) end(s *hub.Snapshot) {
	v.erase()
	if s == nil {
		return
	}
	fmt.Fprintf(v.out, "%s: %d files, %s, %s fetched\n", s, len(s.Files), gib(s.Bytes), gib(s.Fetched))
}

func (v *pullView) erase() {
	if v.bars > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.bars)
		v.bars = 0
	}
}

func (v *pullView) draw() {
	if !v.terminal {
		fmt.Fprintln(v.out, v.total())
		return
	}
	v.erase()
	for _, p := range v.active {
		fmt.Fprintln(v.out, bar(p.Done, p.Total), fit(shown(p.File), 44))
		v.bars++
	}
	fmt.Fprintln(v.out, bar(v.all.AllDone, v.all.AllTotal), v.total())
	v.bars++
}

// total formats the progress of the pull, its rate and the remaining time.
func (v *pullView) total() string {
	s := gib(v.all.AllDone) + " of " + gib(v.all.AllTotal)
	if v.rate > 0 {
		left := time.Duration(float64(v.all.AllTotal-v.all.AllDone) / v.rate * float64(time.Second))
		s += fmt.Sprintf(", %s/s, %s left", gib(int64(v.rate)), left.Round(time.Second))
	}
	return s
}

// bar formats a share as a bar and a percentage.
func bar(done, total int64) string {
	const width = 24
	share := 1.0
	if total > 0 {
		share = min(1, max(0, float64(done)/float64(total)))
	}
	full := int(share * width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full) + fmt.Sprintf(" %3.0f%%", 100*share)
}

// shown returns the name of a file without control characters.
func shown(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
}

// fit truncates a long text at the front, because the names of shards differ at the end.
func fit(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return s
}
