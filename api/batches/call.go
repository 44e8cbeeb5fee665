package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/heftai/heft/api/wire"
)

// A Backend answers the lines of batches.
type Backend struct {
	// Endpoints answer requests, by path.
	Endpoints map[string]http.Handler
	// Limit gives each line its part of the memory for requests; see [wire.Memory.Limit]. nil means
	// no limit.
	Limit func(http.Handler) http.Handler
	// Client returns the client on whose behalf the lines of an owner run. later reports that the
	// lines have to wait. Client fails if the owner may no longer send requests. If Client is nil,
	// all owners may.
	Client func(owner string) (c *wire.Client, later bool, err error)
	// MaxLine is the maximum size of a line in bytes.
	MaxLine int64
	// Parallel is the maximum number of lines that run at once, at least 1.
	Parallel int
}

// read reads a line within the memory for requests and calls use with it. It returns a *lineError,
// a *wire.Error, or the error of use.
func (b *Backend) read(ctx context.Context, in io.ReaderAt, l line, use func(context.Context, []byte) error) error {
	if l.size > b.MaxLine {
		return wrongLine("line_too_long", "", "This line has %d bytes: this server reads at most %d.", l.size, b.MaxLine)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", io.NewSectionReader(in, l.at, l.size))
	if err != nil {
		return err
	}
	r.ContentLength = l.size
	var failed error
	ran := false
	var h http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		text, err := wire.ReadBody(r.Context(), r.Body)
		if err == nil {
			err = use(r.Context(), text)
		}
		failed = err
	})
	if b.Limit != nil {
		h = b.Limit(h)
	}
	var w answer
	h.ServeHTTP(&w, r)
	if !ran {
		return &refused{w.status, w.body.Bytes()}
	}
	return failed
}

// refused is the error of a line for which there was no memory.
type refused struct {
	status int
	body   []byte
}

func (r *refused) Error() string { return "batches: no memory for a line" }

// An answer is an endpoint's answer to a line. It is an http.ResponseWriter for use by one
// goroutine.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
	claim  *wire.Claim
	failed error // there was no memory for the body
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.failed != nil {
		return 0, a.failed
	}
	const copies = 3 // the buffer grows by doubling, and the output line holds the body again
	if a.failed = a.claim.KeepAnswer(copies * len(b)); a.failed != nil {
		return 0, a.failed
	}
	return a.body.Write(b)
}

// unavailable reports whether the model could not be loaded or used. Such a failure may be
// permanent.
func (a *answer) unavailable() bool {
	var body struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	return json.Unmarshal(a.body.Bytes(), &body) == nil && body.Error.Code == "model_unavailable"
}

// as returns the context of a request of owner.
func (b *Backend) as(ctx context.Context, owner string) (inner context.Context, later bool, err error) {
	ctx = wire.WithBackground(wire.WithOwner(ctx, owner))
	if b.Client == nil {
		return ctx, false, nil
	}
	c, later, err := b.Client(owner)
	if err != nil || later {
		return nil, later, err
	}
	return wire.WithClient(ctx, c), false, nil
}

// ask answers one call. The memory of the line is reserved in ctx.
func (b *Backend) ask(ctx context.Context, c call) (a *answer) {
	a = &answer{claim: wire.ClaimOf(ctx)}
	if err := a.claim.Keep(2 * len(c.Body)); err != nil {
		a.failed = err
		return a
	}
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic", "what", p, "path", c.URL, "stack", string(debug.Stack()))
			a.failed = errors.New("the server had an error while processing this line")
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		a.failed = err
		return a
	}
	r.Header.Set("Content-Type", "application/json")
	b.Endpoints[c.URL].ServeHTTP(a, r)
	return a
}
