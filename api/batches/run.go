package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/heftai/heft/api/wire"
)

// Counts counts the lines of a batch.
type Counts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// A runner answers the lines of one file. It can be used once.
type runner struct {
	backend *Backend
	places  *places
	in      *os.File
	owner   string
	name    string // name of the batch, part of the ids of its lines
	out     *results
	errs    *results
	allowed func(url string) error
	failed  func(error)   // is called if results cannot be written; it ends the run
	wrote   func(Counts)  // is called after each result; may be nil
	late    chan struct{} // has an element for each line that waits to be tried again

	mu     sync.Mutex
	counts Counts
	spent  spending
	done   bitmap
}

// resume finds the lines that an earlier process has answered, and counts them.
func (r *runner) resume() error {
	for _, results := range []*results{r.out, r.errs} {
		n, err := results.recover(r.name, r.done.set)
		if err != nil {
			return err
		}
		if results == r.out {
			r.counts.Completed = n
		} else {
			r.counts.Failed = n
		}
	}
	return nil
}

// run answers all lines that have no result yet. It returns when the last one has ended or ctx
// ends. It starts no new line while many lines wait to be tried again.
func (r *runner) run(ctx context.Context) error {
	r.late = make(chan struct{}, r.places.most)
	var running sync.WaitGroup
	defer running.Wait()
	return r.each(func(l line) error {
		select {
		case r.late <- struct{}{}:
			<-r.late
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.places.take(ctx, l.size); err != nil {
			return err
		}
		running.Go(func() { r.answer(ctx, l) })
		return nil
	})
}

// expire writes a result for each line that has none.
func (r *runner) expire(ctx context.Context) error {
	return r.each(func(l line) error {
		err := r.backend.read(ctx, r.in, l, func(_ context.Context, text []byte) error {
			c, err := parseLine(text, r.allowed)
			if err == nil {
				r.fail(l, c.CustomID, "batch_expired", "This request could not be executed before the completion window expired.")
			}
			return err
		})
		return errors.Join(err, context.Cause(ctx))
	})
}

// each calls f with each line that has no result, until f fails.
func (r *runner) each(f func(line) error) error {
	in := newLines(io.NewSectionReader(r.in, 0, 1<<62))
	for {
		l, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && !r.answered(l) {
			err = f(l)
		}
		if err != nil {
			return err
		}
	}
}

// answered reports whether a line has a result.
func (r *runner) answered(l line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done.has(l.number)
}

// Bounds of the time between two attempts of a line for which the server has no room.
const firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second

// answer answers one line, which has a place. While the server is full it tries again, and between
// two attempts it leaves the place to other lines.
func (r *runner) answer(ctx context.Context, l line) {
	again := r.attempt(ctx, l, firstPause)
	r.places.free(l.size)
	if !again || ctx.Err() != nil {
		return
	}
	select {
	case r.late <- struct{}{}:
		defer func() { <-r.late }()
	case <-ctx.Done():
		return
	}
	for pause := firstPause; again; pause = min(2*pause, longestPause) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if r.places.take(ctx, l.size) != nil {
			return
		}
		again = r.attempt(ctx, l, pause)
		r.places.free(l.size)
	}
}

// attempt answers a line after a pause. It reports whether the line has to be tried again.
func (r *runner) attempt(ctx context.Context, l line, pause time.Duration) (again bool) {
	err := r.backend.read(ctx, r.in, l, func(inner context.Context, text []byte) error {
		c, err := parseLine(text, r.allowed)
		if err != nil {
			r.fail(l, c.CustomID, "invalid_request", err.Error())
			return nil
		}
		inner, later, err := r.backend.as(inner, r.owner)
		if err != nil || later {
			again = later
			if !later {
				r.fail(l, c.CustomID, "forbidden", message(err))
			}
			return nil
		}
		a := r.backend.ask(inner, c)
		switch {
		case ctx.Err() != nil:
		case a.failed != nil:
			r.fail(l, c.CustomID, "server_error", message(a.failed))
		case a.status == http.StatusServiceUnavailable && (pause < longestPause || !a.unavailable()):
			again = true
		default:
			r.keep(l, c.CustomID, a)
		}
		return nil
	})
	var full *refused
	var wrong *lineError
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.As(err, &full) && full.status == http.StatusServiceUnavailable:
		return true
	case errors.As(err, &wrong):
		r.fail(l, "", wrong.Code, wrong.Message)
	default:
		r.fail(l, "", "server_error", message(err))
	}
	return again
}

// message returns the text of err for clients.
func message(err error) string {
	var own *wire.Error
	if errors.As(err, &own) {
		return own.Message
	}
	return err.Error()
}

// A result is a line of the output file.
type result struct {
	ID       string       `json:"id"`
	CustomID string       `json:"custom_id"`
	Response *response    `json:"response"`
	Error    *resultError `json:"error"`
	Line     int          `json:"line,omitempty"` // of the input, if the line failed
}

type response struct {
	Status    int             `json:"status_code"`
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
}

type resultError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// prefix returns the start of the results of a batch's lines.
func prefix(name string) string { return `{"id":"batch_req_` + name + "_" }

func (r *runner) id(l line) string { return "batch_req_" + r.name + "_" + strconv.Itoa(l.number) }

// keep writes an endpoint's answer as the result of a line.
func (r *runner) keep(l line, customID string, a *answer) {
	body := bytes.TrimSpace(a.body.Bytes())
	if !json.Valid(body) {
		r.fail(l, customID, "server_error", fmt.Sprintf("The endpoint answered with status %d and no JSON.", a.status))
		return
	}
	id := r.id(l)
	out := result{ID: id, CustomID: customID, Response: &response{a.status, id, body}}
	if a.status == http.StatusOK {
		r.write(r.out, l, out)
		return
	}
	out.Line = l.number
	r.write(r.errs, l, out)
}

// fail writes an error as the result of a line.
func (r *runner) fail(l line, customID, code, message string) {
	r.write(r.errs, l, result{ID: r.id(l), CustomID: customID, Line: l.number,
		Error: &resultError{code, fmt.Sprintf("line %d: %s", l.number, message)}})
}

func (r *runner) write(to *results, l line, what result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := to.append(what); err != nil {
		r.failed(err)
		return
	}
	r.done.set(l.number)
	if to == r.out {
		r.counts.Completed++
		r.spent.add(what.Response.Body)
	} else {
		r.counts.Failed++
	}
	if r.wrote != nil {
		r.wrote(r.counts)
	}
}

// progress returns the counts so far.
func (r *runner) progress() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// spending returns the tokens of all answers so far.
func (r *runner) spending() *spending {
	r.mu.Lock()
	defer r.mu.Unlock()
	spent := r.spent
	return &spent
}

// A bitmap is a set of line numbers, one bit each.
type bitmap []uint64

func (b *bitmap) set(n int) {
	for n/64 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b bitmap) has(n int) bool { return n/64 < len(b) && b[n/64]>>(n%64)&1 == 1 }
