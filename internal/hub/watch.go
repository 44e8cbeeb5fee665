package hub

import (
	"context"
	"errors"
	"io"
	"time"
)

// errIdle ends a request whose connection is idle for too long.
var errIdle = errors.New("the connection is idle")

// A watch ends a request whose connection is idle for too long.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
}

func (c *Client) watch(ctx context.Context) *watch {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx, cancel: cancel, idle: c.system.idle}
	w.timer = time.AfterFunc(w.idle, func() { cancel(errIdle) })
	return w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// reader returns r. Each read of it resets the watch.
func (w *watch) reader(r io.Reader) io.Reader { return watchedReader{r, w} }

type watchedReader struct {
	io.Reader
	watch *watch
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.watch.timer.Reset(r.watch.idle)
	}
	if err != nil && context.Cause(r.watch.ctx) == errIdle {
		err = errIdle
	}
	return n, err
}

// cut returns the error for a body that ended early.
func cut(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return &transient{err: &Error{Kind: Unreachable, Reason: "the connection was cut", Err: plain(err)}}
}
