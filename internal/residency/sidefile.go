package residency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

const (
	// sideVersion changes with the layout of what is in the file.
	sideVersion = "heft converted weights 1: bands of 16 rows"
	// sideSums is the tensor of the matrices' checksums, four bytes each, in their order.
	sideSums = "heft.checksums"
	// sideAside ends the name of a file that is being written.
	sideAside = ".part"
	// sideFresh is how old an unfinished file is that its writer must have claimed, and
	// sideForgotten one that nobody writes any more where files cannot be claimed.
	sideFresh     = 10 * time.Second
	sideForgotten = time.Hour
)

var sideTable = crc32.MakeTable(crc32.Castagnoli)

// sideName is the file's name: one for each checkpoint and format.
func sideName(c *loader.Checkpoint, format meta.QuantFormat) string {
	where := "in memory"
	if dir := c.Dir(); dir != "" {
		where = dir
		if absolute, err := filepath.Abs(dir); err == nil {
			where = absolute
		}
	}
	h := sha256.New()
	fmt.Fprintln(h, where)
	for _, f := range c.Files() {
		fmt.Fprintln(h, f.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]) + "-" + format.String() + ".safetensors"
}

// sideKeyOf stands for all that the converted bytes depend on: the format, the layout, and the
// checkpoint's files by their sizes, times and headers; in memory, by their bytes.
func sideKeyOf(c *loader.Checkpoint, format meta.QuantFormat, list []sideEntry) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, sideVersion, format)
	for _, f := range c.Files() {
		fmt.Fprintln(h, f.Name, f.Size)
		if f.Path == "" {
			continue
		}
		info, err := os.Stat(f.Path)
		if err != nil {
			return "", fmt.Errorf("residency: %w", err)
		}
		fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	}
	for t := range c.Tensors() {
		fmt.Fprintln(h, t.Name, t.DType, t.Shape, t.File.Name, t.Offset)
		if t.File.Path == "" {
			b, err := t.Bytes()
			if err != nil {
				return "", err
			}
			h.Write(b)
		}
	}
	for _, e := range list {
		fmt.Fprintln(h, e.name, e.size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// openSidecar opens a file that is whole. The error says why it is of no use.
func openSidecar(path, key string) (*loader.Checkpoint, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	c, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	if c.Metadata()["key"] != key {
		_ = c.Close() // opened for reading
		return nil, errStale
	}
	return c, nil
}

// A sideFile is the file while it is written.
type sideFile struct {
	f    *os.File
	path string // "" once it has its name
	sums int64  // offset of the checksums
}

// beginSidecar lays the file out under a name aside, with room for everything, and opens it.
func beginSidecar(folder, final, key string, list []sideEntry) (*sideFile, *loader.Checkpoint, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	forget(folder)
	header, size, err := sideHeader(key, list)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.CreateTemp(folder, strings.TrimSuffix(filepath.Base(final), ".safetensors")+"-*"+sideAside+".safetensors")
	if err != nil {
		return nil, nil, err
	}
	_ = hostmem.Claim(f) // where that cannot be done its age protects it
	s := &sideFile{f: f, path: f.Name(), sums: int64(len(header)) + size - int64(4*len(list))}
	err = hostmem.Extend(f, int64(len(header))+size)
	if err == nil {
		_, err = f.WriteAt(header, 0)
	}
	var c *loader.Checkpoint
	if err == nil {
		c, err = loader.Open(s.path)
	}
	if err != nil {
		s.abandon()
		return nil, nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	return s, c, nil
}

// sideHeader is the file's header, so long that tensors begin on a page, and the bytes behind
// it.
func sideHeader(key string, list []sideEntry) (header []byte, size int64, err error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	all := map[string]any{"__metadata__": map[string]string{"key": key}}
	add := func(name string, n int64) {
		all[name] = entry{"U8", []int64{n}, [2]int64{size, size + n}}
		size += n
	}
	for _, e := range list {
		add(e.name, e.size)
	}
	add(sideSums, int64(4*len(list)))
	text, err := json.Marshal(all)
	if err != nil {
		return nil, 0, err
	}
	const page = 4096
	whole := hostmem.Up(8+len(text), page)
	header = append(binary.LittleEndian.AppendUint64(nil, uint64(whole-8)), text...)
	for len(header) < whole {
		header = append(header, ' ')
	}
	return header, size, nil
}

// forget removes unfinished files that nobody writes any more: their processes were killed.
func forget(folder string) {
	names, _ := filepath.Glob(filepath.Join(folder, "*"+sideAside+".safetensors")) // the pattern is well formed
	for _, name := range names {
		if forgotten(name) {
			_ = os.Remove(name) // or the next start does
		}
	}
}

func forgotten(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	age := time.Since(info.ModTime())
	switch err := hostmem.Claim(f); {
	case err == nil:
		return age > sideFresh
	case errors.Is(err, hostmem.ErrClaimed):
		return false
	}
	return age > sideForgotten
}

func (s *sideFile) write(b []byte, off int64) error {
	_, err := s.f.WriteAt(b, off)
	return err
}

// note writes the checksum of matrix i.
func (s *sideFile) note(i int, sum uint32) error {
	return s.write(binary.LittleEndian.AppendUint32(nil, sum), s.sums+int64(4*i))
}

// finish makes the file last under its name.
func (s *sideFile) finish(final string) error {
	if err := s.f.Sync(); err != nil {
		return err
	}
	if s.path == "" {
		return nil // it has been mended
	}
	if err := os.Rename(s.path, final); err != nil {
		return err
	}
	s.path = ""
	d, err := os.Open(filepath.Dir(final))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// abandon closes the file and removes it where it is not whole.
func (s *sideFile) abandon() {
	_ = s.f.Close() // synced where that matters
	if s.path != "" {
		_ = os.Remove(s.path) // or a later start does
	}
}
