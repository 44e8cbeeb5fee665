package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/heftai/heft/internal/atomicfile"
)

// A partial is an unfinished blob: a sparse file, and a second file with the state of its parts.
type partial struct {
	path, statePath string
	file            *os.File
	size            int64
	step            int64 // bytes of a part in a new state

	mu      sync.Mutex
	state   state
	resumed int64 // bytes on disk when it was opened
}

// A spoiled error means that the downloaded bytes are useless. After other errors they are kept.
// For example, a rejected answer such as the login page of a network spoils nothing.
type spoiled struct{ error }

func (e *spoiled) Unwrap() error { return e.error }

// A state says which bytes of a partial are complete: the first Done[i] of part i.
type state struct {
	Size      int64   `json:"size"`
	Part      int64   `json:"part"`
	Validator string  `json:"validator,omitempty"` // the ETag of the response with the bytes
	Done      []int64 `json:"done"`
}

func newState(size, part int64) state {
	return state{Size: size, Part: part, Done: make([]int64, parts(size, part))}
}

// parts returns the number of parts of a file.
func parts(size, part int64) int64 {
	return size/part + min(1, size%part)
}

// length returns the size of part i.
func (s *state) length(i int) int64 { return min(s.Part, s.Size-int64(i)*s.Part) }

func (s *state) done() int64 {
	n := int64(0)
	for _, d := range s.Done {
		n += d
	}
	return n
}

// readState reads the state of a file of size bytes, of which have are on disk. It returns false if
// the state does not fit; the download then starts again.
func readState(text []byte, size, have int64) (state, bool) {
	var s state
	if json.Unmarshal(text, &s) != nil || s.Size != size || s.Part <= 0 {
		return state{}, false
	}
	if int64(len(s.Done)) != parts(size, s.Part) {
		return state{}, false
	}
	for i, d := range s.Done {
		if d < 0 || d > s.length(i) || d > 0 && int64(i)*s.Part+d > have {
			return state{}, false
		}
	}
	return s, true
}

// openPartial continues the download of a blob, or starts a new one.
func openPartial(blob string, size, step int64) (*partial, error) {
	p := &partial{path: blob + ".heft.incomplete", statePath: blob + ".heft.state", size: size, step: step}
	f, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, disk("opening the download", err)
	}
	p.file = f
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, disk("opening the download", err)
	}
	if text, err := os.ReadFile(p.statePath); err == nil {
		if s, ok := readState(text, size, info.Size()); ok {
			p.state, p.resumed = s, s.done()
			return p, nil
		}
	}
	if err := p.restart(step); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// restart discards the downloaded bytes.
func (p *partial) restart(step int64) error {
	p.mu.Lock()
	p.state, p.resumed = newState(p.size, step), 0
	p.mu.Unlock()
	if err := p.file.Truncate(0); err != nil {
		return disk("opening the download", err)
	}
	return p.save()
}

// save writes the state, so that the download can continue in another process.
func (p *partial) save() error {
	p.mu.Lock()
	text, err := json.Marshal(p.state)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return replace(p.statePath, text)
}

// remove discards the download.
func (p *partial) remove() {
	p.file.Close()
	_ = os.Remove(p.path)
	_ = os.Remove(p.statePath)
}

// unfinished returns the incomplete parts.
func (p *partial) unfinished() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var todo []int
	for i, d := range p.state.Done {
		if d < p.state.length(i) {
			todo = append(todo, i)
		}
	}
	return todo
}

// rest returns the missing range of part i, and the validator that its answer must have.
func (p *partial) rest(i int) (begin, end int64, validator string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := int64(i) * p.state.Part
	return first + p.state.Done[i], first + p.state.length(i), p.state.Validator
}

func (p *partial) advance(i int, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Done[i] += n
}

func (p *partial) done() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.done()
}

// validate records the first validator, and rejects others.
func (p *partial) validate(tag string) error {
	if tag == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Validator == "" {
		p.state.Validator = tag
	}
	if p.state.Validator != tag {
		return &spoiled{failf(Corrupt, "the file changed on the server while it was fetched: its tag was %s, now it is %s",
			printable(p.state.Validator), printable(tag))}
	}
	return nil
}

// check compares the file's hash with its name: SHA-256, or SHA-1 as git computes it.
func (p *partial) check(ctx context.Context, want string) error {
	info, err := p.file.Stat()
	if err != nil {
		return disk("checking the download", err)
	}
	if info.Size() != p.size {
		return &spoiled{failf(Corrupt, "got %d bytes, want %d", info.Size(), p.size)}
	}
	var h hash.Hash
	if len(want) == sha256.Size*2 {
		h = sha256.New()
	} else {
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", p.size)
	}
	if _, err := io.Copy(h, stoppable{ctx, io.NewSectionReader(p.file, 0, p.size)}); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return disk("checking the download", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return &spoiled{failf(Corrupt, "got a file with hash %s, want %s", got, want)}
	}
	return nil
}

// finish turns the file into the blob.
func (p *partial) finish(blob string) error {
	if err := p.file.Sync(); err != nil {
		return disk("writing", err)
	}
	if err := p.file.Close(); err != nil {
		return disk("writing", err)
	}
	if err := atomicfile.Rename(p.path, blob); err != nil {
		return disk("putting the blob in its place", err)
	}
	_ = os.Remove(p.statePath)
	return nil
}

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx context.Context
	io.Reader
}

func (r stoppable) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// strong reports whether a validator is allowed in If-Range.
func strong(tag string) bool { return strings.HasPrefix(tag, `"`) }
