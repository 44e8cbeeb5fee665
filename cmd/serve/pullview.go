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

// A pullView shows how a pull goes: on a terminal a bar for each file that comes and one
// for all, elsewhere a line for each file that is there and one from time to time.
type pullView struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	active []hub.Progress // files that have begun and are not all there, in that order
	all    hub.Progress
	bars   int // lines that the bars take on the terminal now
	drawn  time.Time
	rate   float64 // bytes a second, the last ones counting most
	since  time.Time
	before int64 // bytes that had come by since
}

// How often a terminal is redrawn, and how often a line is written elsewhere.
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

// tell takes one piece of news. It is called by one goroutine at a time.
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

// done writes the line of a file of which all bytes have come, once.
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
		return // it was in the cache, or arrived in one piece with its hash
	}
	v.erase()
	fmt.Fprintf(v.out, "%s  %s\n", shown(p.File), gib(p.Total))
	if v.terminal {
		v.draw()
	}
}

// end takes the bars away and sums up.
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

// total is how far all is, how fast, and how long it still takes.
func (v *pullView) total() string {
	s := gib(v.all.AllDone) + " of " + gib(v.all.AllTotal)
	if v.rate > 0 {
		left := time.Duration(float64(v.all.AllTotal-v.all.AllDone) / v.rate * float64(time.Second))
		s += fmt.Sprintf(", %s/s, %s left", gib(int64(v.rate)), left.Round(time.Second))
	}
	return s
}

// bar is a share as a bar and a percentage.
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

// fit keeps the end of a long text, where shards differ.
func fit(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return s
}
