package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
)

// A fetch downloads one file into the cache.
type fetch struct {
	*Client
	file
	meter *meter
}

// errWhole means that the server sends the whole file instead of parts.
var errWhole = errors.New("the server ignores ranges")

// run downloads the blob and makes the snapshot's file point to it.
func (f *fetch) run(ctx context.Context) error {
	return inFile(f.bring(ctx), f.repo, f.name)
}

func (f *fetch) bring(ctx context.Context) error {
	p := f.paths(f.repo)
	if holds(p.pointer(f.commit, f.name), f.size) {
		f.meter.have(f.file)
		return nil
	}
	unlock, err := lock(ctx, p.lock(f.hash))
	if err != nil {
		return err
	}
	defer unlock()
	blob := p.blob(f.hash)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return disk("making the folder of blobs", err)
	}
	if !holds(blob, f.size) {
		if err := f.blob(ctx, blob); err != nil {
			return err
		}
	}
	f.meter.have(f.file)
	return f.point(f.file)
}

// blob downloads, verifies and names the blob. If it fails, the downloaded parts stay for the next
// attempt, unless they are spoiled. If they are, and some of them are of an earlier run, it
// downloads the whole file once more.
func (f *fetch) blob(ctx context.Context, blob string) error {
	p, err := openPartial(blob, f.size, f.system.part)
	if err != nil {
		return err
	}
	for again := false; ; again = true {
		resumed := p.resumed > 0
		f.meter.set(f.file, p.done())
		err := f.fill(ctx, p)
		if err == nil {
			err = p.check(ctx, f.hash)
		}
		if err == nil {
			return p.finish(blob)
		}
		if bad := (*spoiled)(nil); !errors.As(err, &bad) {
			_ = p.save() // what is on disk is resumed; the original error says more
			p.file.Close()
			return err
		}
		if !resumed || again {
			p.remove()
			return err
		}
		if err := p.restart(f.system.part); err != nil {
			p.file.Close()
			return err
		}
	}
}

// fill downloads missing parts, several at a time.
func (f *fetch) fill(ctx context.Context, p *partial) error {
	err := each(ctx, f.config.Connections, p.unfinished(), func(ctx context.Context, _, i int) error {
		return f.try(ctx, func() (bool, error) { return f.part(ctx, p, i) })
	})
	if !errors.Is(err, errWhole) {
		return err
	}
	return f.try(ctx, func() (bool, error) {
		if err := p.restart(max(1, f.size)); err != nil {
			return false, err
		}
		f.meter.set(f.file, 0)
		_, err := f.part(ctx, p, 0)
		return false, err
	})
}

// much is the number of bytes that count as progress. Connections that transfer fewer are not
// retried for ever.
const much = 256 << 10

// part makes one request for the rest of part i.
func (f *fetch) part(ctx context.Context, p *partial, i int) (progress bool, err error) {
	begin, end, validator := p.rest(i)
	if begin == end {
		return false, nil
	}
	release, err := f.slot(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	watched := f.watch(ctx)
	defer watched.stop()
	header := http.Header{}
	whole := begin == 0 && end == f.size
	if !whole {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", begin, end-1))
		if strong(validator) {
			header.Set("If-Range", validator)
		}
	}
	a, err := f.send(watched.ctx, http.MethodGet, f.place(f.repo, f.commit, f.name), header)
	if err != nil {
		return false, err
	}
	defer a.Body.Close()
	if err := f.accept(a, f.file, begin, end); err != nil {
		return false, err
	}
	if err := p.validate(a.Header.Get("ETag")); err != nil {
		return false, err
	}
	if a.StatusCode == http.StatusOK && !whole {
		return false, errWhole
	}
	n, err := f.copy(p, i, watched.reader(a.Body), end-begin)
	if err == nil && n == end-begin {
		err = p.save()
	} else if err == nil {
		err = cut(nil)
	}
	return n >= much, err
}

// accept checks that an answer has the requested bytes of the right file, or else the whole file.
func (c *Client) accept(a *answer, f file, begin, end int64) error {
	if a.facts.commit != "" && a.facts.commit != f.commit || a.facts.linked && a.facts.hash != f.hash {
		return failf(Corrupt, "the file changed on the server while it was fetched")
	}
	switch a.StatusCode {
	case http.StatusPartialContent:
		from, to, size, ok := contentRange(a.Header.Get("Content-Range"))
		if !ok || from != begin || to > end {
			return failf(Corrupt, "got the range %[3]q, want bytes %[1]d-%[2]d", begin, end-1, printable(a.Header.Get("Content-Range")))
		}
		if size >= 0 && size != f.size {
			return failf(Corrupt, "got parts of a file of %[2]d bytes, want %[1]d", f.size, size)
		}
	case http.StatusOK:
		if a.ContentLength >= 0 && a.ContentLength != f.size {
			return failf(Corrupt, "got %[2]d bytes, want %[1]d", f.size, a.ContentLength)
		}
	default:
		return c.refusal(a, f.repo)
	}
	if encoding := a.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return failf(Corrupt, "got the file encoded as %s, want it without an encoding", printable(encoding))
	}
	return nil
}

// contentRange reads "bytes FROM-LAST/SIZE" as [from, to) of size. A size of -1 is unknown.
func contentRange(s string) (from, to, size int64, ok bool) {
	var last int64
	var total string
	if n, err := fmt.Sscanf(s, "bytes %d-%d/%s", &from, &last, &total); n != 3 || err != nil {
		return 0, 0, 0, false
	}
	size = number(total)
	if from < 0 || last < from || last == math.MaxInt64 || size < 0 && total != "*" || size >= 0 && last >= size {
		return 0, 0, 0, false
	}
	return from, last + 1, size, true
}

// saveEvery is the number of bytes of a part that a killed process may lose.
const saveEvery = 16 << 20

// copy writes at most n bytes of a body to part i. It fails if there are more.
func (f *fetch) copy(p *partial, i int, body io.Reader, n int64) (copied int64, err error) {
	buffer := make([]byte, min(n+1, 128<<10))
	for unsaved := 0; ; {
		if unsaved >= saveEvery {
			if err := p.save(); err != nil {
				return copied, err
			}
			unsaved = 0
		}
		k, err := body.Read(buffer[:min(int64(len(buffer)), n-copied+1)])
		if int64(k) > n-copied {
			return copied, failf(Corrupt, "the server sends more bytes than it announced")
		}
		if k > 0 {
			begin, _, _ := p.rest(i)
			if _, err := f.system.writeAt(p.file, buffer[:k], begin); err != nil {
				return copied, disk("writing", err)
			}
			p.advance(i, int64(k))
			copied, unsaved = copied+int64(k), unsaved+k
			f.meter.add(f.file, int64(k))
		}
		switch {
		case err == io.EOF:
			return copied, nil
		case err != nil:
			return copied, cut(err)
		}
	}
}
