package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/heftai/heft/internal/hubcache"
)

// Headers are the parts of a model that a plan needs: its configuration and the headers of its
// safetensors files.
type Headers struct {
	Repo   string
	Commit string
	Config []byte // config.json
	Quant  []byte // hf_quant_config.json, or nil if there is none
	Index  []byte // the index of the shards, or nil if there is none
	Shards []Shard
	// Fetched is the number of bytes of shards that were downloaded.
	Fetched int64
}

// A Shard is the header of a safetensors file on the hub.
type Shard struct {
	Name string
	Size int64  // bytes of the whole file
	Head []byte // its first bytes: the header's length and the header
}

// The limits of a header. Most fit into the first bytes that are asked for.
const (
	lengthSize = 8
	firstBytes = 16 << 10
	maxHeader  = 100_000_000 // the format's own limit
)

// FetchHeaders fetches only config.json, hf_quant_config.json, the index and the headers of the
// shards. All but the headers are stored in the snapshot, headers in a separate folder of the cache. The ref does not
// change, so a complete snapshot is still the one that is served.
func (c *Client) FetchHeaders(ctx context.Context, repo Repo, revision string) (*Headers, error) {
	h, err := c.fetchHeaders(ctx, repo, revision)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return h, inFile(err, repo, "")
}

func (c *Client) fetchHeaders(ctx context.Context, repo Repo, revision string) (*Headers, error) {
	if revision == "" {
		revision = mainRevision
	}
	if err := checkRevision(revision); err != nil {
		return nil, err
	}
	if c.config.Offline {
		return nil, failf(Offline, "not in the cache, and offline, as HF_HUB_OFFLINE says")
	}
	l, err := c.list(ctx, repo, revision)
	if err != nil {
		return nil, err
	}
	names := l.names()
	weights := findWeights(names)
	switch {
	case !slices.Contains(names, configName):
		return nil, failf(NotFound, "the revision has no %s", configName)
	case weights.index == "" && len(weights.shards) == 0:
		return nil, noWeights(names)
	}
	p := &pull{Client: c, repo: repo, listing: l, meter: newMeter(nil)}
	first := []string{configName}
	if slices.Contains(names, quantName) {
		first = append(first, quantName)
	}
	if weights.index != "" {
		first = append(first, weights.index)
	}
	if err := p.bring(ctx, first); err != nil {
		return nil, err
	}
	h := &Headers{Repo: repo.String(), Commit: l.commit}
	if h.Config, err = p.read(configName); err != nil {
		return nil, err
	}
	if slices.Contains(first, quantName) {
		if h.Quant, err = p.read(quantName); err != nil {
			return nil, err
		}
	}
	if weights.index != "" {
		if h.Index, err = p.read(weights.index); err != nil {
			return nil, err
		}
		if weights.shards, err = readIndex(h.Index); err != nil {
			return nil, inFile(err, repo, weights.index)
		}
	}
	return h, p.shards(ctx, h, weights.shards)
}

// read returns the contents of a file that was fetched.
func (p *pull) read(name string) ([]byte, error) {
	b, err := os.ReadFile(p.paths(p.repo).pointer(p.listing.commit, name))
	if err != nil {
		return nil, inFile(disk("reading", err), p.repo, name)
	}
	return b, nil
}

// shards fetches the headers of the named files.
func (p *pull) shards(ctx context.Context, h *Headers, names []string) error {
	h.Shards = make([]Shard, len(names))
	fetched := make([]int64, len(names))
	err := each(ctx, p.config.Connections, names, func(ctx context.Context, i int, name string) error {
		f, err := p.entry(ctx, name)
		if err != nil {
			return err
		}
		head, n, err := p.head(ctx, f)
		h.Shards[i], fetched[i] = Shard{Name: f.name, Size: f.size, Head: head}, n
		return inFile(err, p.repo, f.name)
	})
	for _, n := range fetched {
		h.Fetched += n
	}
	return err
}

// entry returns the entry of a file. It uses the listing alone if that has hash and size.
func (p *pull) entry(ctx context.Context, name string) (file, error) {
	if e, ok := p.listing.find(name); ok && e.hash != "" && e.size >= 0 && hubcache.UnsafePath(name) == "" {
		return file{repo: p.repo, commit: p.listing.commit, name: name, hash: e.hash, size: e.size}, nil
	}
	return p.look(ctx, name)
}

// head returns the first bytes of a file, from the cache or the hub.
func (p *pull) head(ctx context.Context, f file) (head []byte, fetched int64, err error) {
	paths := p.paths(p.repo)
	for _, path := range []string{paths.pointer(f.commit, f.name), paths.blob(f.hash)} {
		if holds(path, f.size) {
			if head, err := readHead(path, f.size); err == nil {
				return head, 0, nil
			}
		}
	}
	kept := paths.header(f.hash)
	if head, err := readHead(kept, f.size); err == nil && holds(kept, int64(len(head))) {
		return head, 0, nil
	}
	head, fetched, err = p.fetchHead(ctx, f)
	if err != nil {
		return nil, fetched, err
	}
	return head, fetched, replace(kept, head)
}

// readHead returns the header at the beginning of the file at path, with its length.
func readHead(path string, size int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var first [lengthSize]byte
	if _, err := file.ReadAt(first[:], 0); err != nil {
		return nil, err
	}
	end, err := headerEnd(first[:], size)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.Size() < end {
		return nil, io.ErrUnexpectedEOF
	}
	head := make([]byte, end)
	_, err = file.ReadAt(head, 0)
	return head, err
}

// headerEnd returns the end of the header in a file that begins with first.
func headerEnd(first []byte, size int64) (int64, error) {
	n := binary.LittleEndian.Uint64(first)
	if n > maxHeader || int64(n) > size-lengthSize {
		return 0, failf(Corrupt, "not a safetensors file: got a header of %d bytes in a file of %d", n, size)
	}
	return lengthSize + int64(n), nil
}

func (p *pull) fetchHead(ctx context.Context, f file) (head []byte, fetched int64, err error) {
	if f.size < lengthSize {
		return nil, 0, failf(Corrupt, "got %d bytes, too few for a safetensors file", f.size)
	}
	head, tag, err := p.bytes(ctx, f, 0, min(firstBytes, f.size))
	if err != nil {
		return nil, 0, err
	}
	end, err := headerEnd(head, f.size)
	if err != nil || end <= int64(len(head)) {
		return head[:max(0, min(end, int64(len(head))))], int64(len(head)), err
	}
	rest, again, err := p.bytes(ctx, f, int64(len(head)), end)
	if err == nil && tag != again {
		err = failf(Corrupt, "the file changed on the server while its header was fetched")
	}
	head = append(head, rest...)
	return head, int64(len(head)), err
}

// bytes downloads the bytes [begin, end) of a file, with their ETag.
func (c *Client) bytes(ctx context.Context, f file, begin, end int64) (b []byte, tag string, err error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", begin, end-1)}}
	err = c.ask(ctx, http.MethodGet, c.place(f.repo, f.commit, f.name), header, func(a *answer, body io.Reader) error {
		if err := c.accept(a, f, begin, end); err != nil {
			return err
		}
		skip := int64(0)
		if a.StatusCode == http.StatusOK { // the server ignores ranges: the rest is not read
			skip = begin
		}
		if _, err := io.CopyN(io.Discard, body, skip); err != nil {
			return cut(err)
		}
		var got bytes.Buffer
		if _, err := io.CopyN(&got, body, end-begin); err != nil {
			return cut(err)
		}
		b, tag = got.Bytes(), a.Header.Get("ETag")
		return nil
	})
	return b, tag, err
}
