package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A transient is a failure that a retry may avoid.
type transient struct {
	err   error
	after time.Duration // wait that the server requests; 0: none
}

func (t *transient) Error() string { return t.err.Error() }
func (t *transient) Unwrap() error { return t.err }

// The waits between tries: the first, the client's longest, and the longest that a server may
// request.
const (
	firstWait = 500 * time.Millisecond
	mostWait  = 30 * time.Second
	mostAsked = 5 * time.Minute
)

// try calls step until it succeeds or fails permanently. After a transient failure it waits and
// retries; each wait is twice as long. It stops after too many failures in a row. Progress starts a
// new row.
func (c *Client) try(ctx context.Context, step func() (progress bool, err error)) error {
	wait, failures := firstWait, 0
	for {
		progress, err := step()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var t *transient
		if !errors.As(err, &t) {
			return err
		}
		if progress {
			wait, failures = firstWait, 0
		}
		if failures++; failures >= c.patience(t) {
			return given(t, "tried "+strconv.Itoa(failures)+" times")
		}
		if t.after > mostAsked {
			return given(t, "it asks to come back in "+t.after.Round(time.Second).String())
		}
		// Half of the wait is random, so that many clients do not retry together.
		d := wait/2 + time.Duration(c.system.jitter()*float64(wait/2))
		if t.after > 0 {
			d = t.after + time.Duration(c.system.jitter()*float64(firstWait))
		}
		if err := c.system.sleep(ctx, d); err != nil {
			return err
		}
		wait = min(2*wait, mostWait)
	}
}

// blindRetries is the number of retries for a hub that has never answered.
const blindRetries = 2

// patience returns the number of failures in a row that end the retries. There is none for a hub
// that cannot be reached at all, without a network or under an unknown name.
func (c *Client) patience(t *transient) int {
	var dial *net.OpError
	if !c.reached.Load() && errors.As(t.err, &dial) && dial.Op == "dial" {
		return min(blindRetries, c.config.Retries)
	}
	return c.config.Retries
}

// given returns the error after the last retry.
func given(t *transient, why string) error {
	var e *Error
	if !errors.As(t.err, &e) {
		return t.err
	}
	last := *e
	last.Reason += " (" + why + ")"
	return &last
}

// retryAfter returns the wait that a response asks for: Retry-After in seconds or as a date, or
// else t of an exhausted RateLimit, such as "api";r=0;t=55.
func retryAfter(h http.Header) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if s == "" {
		return seconds(rateLimit(h.Get("RateLimit")))
	}
	if n := number(s); n >= 0 {
		return seconds(n)
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}

func seconds(n int64) time.Duration { return time.Duration(min(max(n, 0), 1e6)) * time.Second }

// rateLimit returns the seconds until an exhausted limit is reset, or 0 if it is not exhausted.
func rateLimit(s string) int64 {
	var reset int64
	for field := range strings.SplitSeq(s, ";") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(field), "="); name {
		case "r":
			if number(value) > 0 {
				return 0
			}
		case "t":
			reset = number(value)
		}
	}
	return reset
}
