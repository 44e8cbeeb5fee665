package residency

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A sizeRecord holds the actual sizes of parameters that an exact format does not make smaller as
// a whole, as an earlier start found them. It is the JSON of a file next to the sidecar.
type sizeRecord struct {
	Key   string           `json:"key"`   // of the checkpoint and the format
	Bytes map[string]int64 `json:"bytes"` // by path
}

// mostRecord is the maximum size of such a file in bytes.
const mostRecord = 64 << 20

// recordOf returns the name of the file for c, and the key that it must have.
func recordOf(folder string, c *loader.Checkpoint, to backend.Converter) (path, key string, err error) {
	key, err = sideFingerprint(c, &quantizer{Converter: to}, nil)
	name := strings.TrimSuffix(sideName(c, to.Format()), ".safetensors") + "-sizes.json"
	return filepath.Join(folder, name), key, err
}

// KnownSizes returns the sizes, by path, of parameters that the exact format of to does not make
// smaller as a whole, as an earlier start recorded them in folder. found reports whether there is
// a record for this checkpoint. KnownSizes reads no weight.
func KnownSizes(folder string, c *loader.Checkpoint, to backend.Converter) (sizes map[string]int64, found bool) {
	if folder == "" || c == nil || c.Dir() == "" {
		return nil, false
	}
	path, key, err := recordOf(folder, c, to)
	if err != nil {
		return nil, false
	}
	text, err := smallfile.Read(path, mostRecord)
	if err != nil {
		return nil, false
	}
	var r sizeRecord
	if err := json.Unmarshal(text, &r); err != nil {
		slog.Warn("ignoring the sizes of coded weights", "file", path, "reason", err)
		return nil, false
	}
	return r.Bytes, r.Key == key
}

// HasSidecar reports whether folder has a complete file of c's weights in format. [KnownSizes]
// tells whether the file still belongs to c.
func HasSidecar(folder string, c *loader.Checkpoint, format meta.QuantFormat) bool {
	_, err := os.Stat(filepath.Join(folder, sideName(c, format)))
	return err == nil
}

// recordSizes writes the sizes that this start has found, for the plan of the next one.
func (s *Store) recordSizes() {
	c := s.binding.Checkpoint()
	if s.folder == "" || !s.quantizer.exact() || c.Dir() == "" || s.sidecar.isUnwritten() {
		return
	}
	sizes := s.foundSizes()
	if known, ok := KnownSizes(s.folder, c, s.quantizer); ok && maps.Equal(sizes, known) {
		return
	}
	path, key, err := recordOf(s.folder, c, s.quantizer)
	if err == nil {
		err = writeSizes(path, sizeRecord{key, sizes})
	}
	if err != nil {
		slog.Warn("the sizes of coded weights cannot be kept", "file", path, "reason", err)
	}
}

func writeSizes(path string, r sizeRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, text)
}

// foundSizes returns the sizes of parameters that are used as stored in part or as a whole.
func (s *Store) foundSizes() map[string]int64 {
	sizes, plain := map[*meta.Param]int64{}, map[*meta.Param]bool{}
	for p, n := range s.quantizer.used {
		sizes[p], plain[p] = n, s.quantizer.bytes[p] == 0
	}
	add := func(p *meta.Param, coded, stored int64, asStored bool) {
		if !asStored {
			stored = coded
		}
		sizes[p] += stored
		plain[p] = plain[p] || asStored
	}
	for p := range s.quantizer.bytes {
		sizes[p] = 0
	}
	if s.sidecar != nil {
		for _, j := range s.sidecar.order {
			add(j.param, j.target.Size, j.source.Size, j.plain.Load())
		}
	} else {
		for _, g := range s.copies.order {
			if g.param != nil && g.convert {
				add(g.param, s.quantizer.bytes[g.param], g.param.Bytes(), g.plain.Load())
			} else if g.stack != nil && g.convert {
				for _, p := range g.stack.params {
					if count := int64(p.Shape[0]); s.quantizer.selects(p) {
						add(p, s.quantizer.bytes[p]/count, p.Bytes()/count, g.plain.Load())
					}
				}
			}
		}
	}
	out := map[string]int64{}
	for p, n := range sizes {
		if plain[p] {
			out[s.paths[p]] = n
		}
	}
	return out
}

// skipKnown leaves parameters as stored that an earlier start could not make smaller. A sidecar
// has its own marks.
func (s *Store) skipKnown() {
	if s.sidecar != nil || !s.quantizer.exact() {
		return
	}
	for p, n := range s.quantizer.used {
		if n >= p.Bytes() {
			delete(s.quantizer.bytes, p)
		}
	}
}
