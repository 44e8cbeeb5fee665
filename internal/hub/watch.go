package hub

import (
	"context"
	"errors"
	"io"
	"time"
)

// errIdle is why a request that brings nothing is given up.
var errIdle = errors.New("the connection brings nothing")

// A watch ends a request whose connection brings nothing for too long.
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

// reader returns r, each read of which shows that the connection lives.
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

// cut returns the error of a body that ended before its end.
func cut(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return &transient{err: &Error{Kind: Unreachable, Reason: "the connection was cut", Err: plain(err)}}
}
