package residency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

const (
	// sideVersion changes with the layout of what is in the file.
	sideVersion = "heft converted weights 1: bands of 16 rows"
	// sideSums is the tensor of the matrices' checksums, four bytes each, in their order.
	sideSums = "heft.checksums"
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
	temp *atomicfile.File // nil if f has its final name
	sums int64            // offset of the checksums
}

// beginSidecar lays the file out under a name aside, with room for everything, and opens it.
func beginSidecar(folder, final, key string, list []sideEntry) (*sideFile, *loader.Checkpoint, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	header, size, err := sideHeader(key, list)
	if err != nil {
		return nil, nil, err
	}
	temp, err := atomicfile.Create(final)
	if err != nil {
		return nil, nil, err
	}
	s := &sideFile{f: temp.File, temp: temp, sums: int64(len(header)) + size - int64(4*len(list))}
	err = hostmem.Extend(s.f, int64(len(header))+size)
	if err == nil {
		_, err = s.f.WriteAt(header, 0)
	}
	var c *loader.Checkpoint
	if err == nil {
		c, err = loader.Open(temp.Name())
	}
	if err != nil {
		s.abandon()
		return nil, nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	return s, c, nil
}

// resumeSidecar continues the file that an earlier process, killed or stopped, began for final, if its layout is
// that of key. The matrices that it has are found by their checksums. It returns nil if there is
// none of use.
func resumeSidecar(final, key string, list []sideEntry) (*sideFile, *loader.Checkpoint) {
	header, size, err := sideHeader(key, list)
	if err != nil {
		return nil, nil
	}
	for {
		temp := atomicfile.Resume(final)
		if temp == nil {
			return nil, nil
		}
		s := &sideFile{f: temp.File, temp: temp, sums: int64(len(header)) + size - int64(4*len(list))}
		begin := make([]byte, len(header))
		if _, err := s.f.ReadAt(begin, 0); err == nil && bytes.Equal(begin, header) {
			if c, err := loader.Open(temp.Name()); err == nil { // as long as its header says
				return s, c
			}
		}
		s.abandon() // of another checkpoint, or killed before it was laid out
	}
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

func (s *sideFile) write(b []byte, off int64) error {
	_, err := s.f.WriteAt(b, off)
	return err
}

// note writes the checksum of matrix i.
func (s *sideFile) note(i int, sum uint32) error {
	return s.write(binary.LittleEndian.AppendUint32(nil, sum), s.sums+int64(4*i))
}

// finish syncs the file and gives it its final name.
func (s *sideFile) finish() error {
	if s.temp == nil {
		return s.f.Sync() // it has been mended
	}
	return s.temp.Commit()
}

// leave closes the file and keeps it for [resumeSidecar] if it is not complete.
func (s *sideFile) leave() {
	if s.temp != nil {
		s.temp.Leave()
		return
	}
	_ = s.f.Close() // synced where that matters
}

// abandon closes the file and removes it if it is not complete.
func (s *sideFile) abandon() {
	if s.temp != nil {
		s.temp.Discard()
		return
	}
	_ = s.f.Close() // synced where that matters
}
