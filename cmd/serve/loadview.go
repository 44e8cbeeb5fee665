package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/heftai/heft/dispatch"
)

// A loadView shows the progress of loading: on a terminal in one line below the log, and elsewhere
// with occasional lines of the log. The log must be written through it.
type loadView struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	mu    sync.Mutex
	shown bool // the line is on the terminal

	begin, last time.Time
}

// reportLoading is the interval of progress lines if there is no terminal.
const reportLoading = 5 * time.Second

// newLoadView returns a view that writes to out, which ends in the file at.
func newLoadView(at *os.File, out io.Writer) *loadView {
	info, err := at.Stat()
	return &loadView{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb", now: time.Now}
}

// Write writes lines of the log above the line of the view.
func (v *loadView) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	return v.out.Write(p)
}

func (v *loadView) erase() {
	if v.shown {
		fmt.Fprint(v.out, "\r\x1b[K")
		v.shown = false
	}
}

// watch shows the progress that loading returns until it is complete or ctx ends.
func (v *loadView) watch(ctx context.Context, loading func() dispatch.Loading) {
	for v.begin = v.now(); !v.tell(loading()); {
		select {
		case <-ctx.Done():
			v.clear()
			return
		case <-time.After(redraw):
		}
	}
}

func (v *loadView) clear() {
	v.mu.Lock()
	v.erase()
	v.mu.Unlock()
}

// tell shows progress. It returns true once loading is complete.
func (v *loadView) tell(l dispatch.Loading) bool {
	now := v.now()
	if v.last.IsZero() {
		v.last = now
	}
	switch {
	case l.Done:
		v.clear()
		slog.Info("loaded", "weights", gib(l.BytesTotal), "seconds", fmt.Sprintf("%.1f", now.Sub(v.begin).Seconds()))
		return true
	case l.Err != nil:
		v.clear()
		slog.Error("loading has stopped", "reason", l.Err)
		return true
	case v.terminal:
		v.mu.Lock()
		v.erase()
		fmt.Fprint(v.out, fit(l.String(), 78))
		v.shown = true
		v.mu.Unlock()
	case now.Sub(v.last) >= reportLoading:
		v.last = now
		slog.Info(l.String())
	}
	return false
}
