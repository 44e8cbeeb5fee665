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
	// sideVersion changes with the layout of the file. The layout of a matrix follows it.
	sideVersion = "heft converted weights 2:"
	// sideSums is the name of the tensor of checksums: four bytes for each tile of each matrix.
	sideSums = "heft.checksums"
)

var sideTable = crc32.MakeTable(crc32.Castagnoli)

// sideName returns the file's name, which is different for each checkpoint and format.
func sideName(c *loader.Checkpoint, format meta.QuantFormat) string {
	return c.Key() + "-" + format.String() + ".safetensors"
}

// sideFingerprint returns a hash of everything that the converted bytes depend on: the format, its layout,
// and the size, time and header of the checkpoint's files. It hashes the bytes of a checkpoint in
// memory.
func sideFingerprint(c *loader.Checkpoint, to *quantizer, list []sideMatrix) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, sideVersion, to.Layout(), to.Format())
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

// openSidecar opens a complete file. It returns an error if there is none, and errStale if its
// key differs.
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

// A sideFile is a sidecar's file that is open for writing.
type sideFile struct {
	f    *os.File
	temp *atomicfile.File // nil for a complete file
	sums int64            // offset of the checksums

	intercept func(write func() error) error // of a Mover
}

// beginSidecar creates a temporary file of the final size with its header, and opens it. It
// returns an error if the disk has no room for it.
func beginSidecar(folder, final, key string, list []sideMatrix) (*sideFile, *loader.Checkpoint, error) {
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
	s := &sideFile{f: temp.File, temp: temp, sums: int64(len(header)) + size - 4*sumCount(list)}
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

// resumeSidecar opens the temporary file that an earlier process began for final, if its header
// matches key. Checksums say which matrices it has. It returns nil if there is no such file, and
// removes files with another header.
func resumeSidecar(final, key string, list []sideMatrix) (*sideFile, *loader.Checkpoint) {
	header, size, err := sideHeader(key, list)
	if err != nil {
		return nil, nil
	}
	for {
		temp := atomicfile.Resume(final)
		if temp == nil {
			return nil, nil
		}
		s := &sideFile{f: temp.File, temp: temp, sums: int64(len(header)) + size - 4*sumCount(list)}
		begin := make([]byte, len(header))
		if _, err := s.f.ReadAt(begin, 0); err == nil && bytes.Equal(begin, header) {
			if c, err := loader.Open(temp.Name()); err == nil { // it checks the size
				return s, c
			}
		}
		s.abandon() // of another checkpoint, or incomplete
	}
}

// sumCount returns the number of checksums of all matrices.
func sumCount(list []sideMatrix) int64 {
	last := &list[len(list)-1]
	return int64(last.firstSum + last.count)
}

// sideHeader returns the file's header, padded to whole pages, and the number of bytes after it.
func sideHeader(key string, list []sideMatrix) (header []byte, size int64, err error) {
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
	add(sideSums, 4*sumCount(list))
	text, err := json.Marshal(all)
	if err != nil {
		return nil, 0, err
	}
	whole := hostmem.Up(8+len(text), 4096)
	header = append(binary.LittleEndian.AppendUint64(nil, uint64(whole-8)), text...)
	for len(header) < whole {
		header = append(header, ' ')
	}
	return header, size, nil
}

// write writes b at off. Its error is a *SidecarError.
func (s *sideFile) write(b []byte, off int64) error {
	write := func() error { _, err := s.f.WriteAt(b, off); return err }
	var err error
	if s.intercept != nil {
		err = s.intercept(write)
	} else {
		err = write()
	}
	if err != nil {
		return &SidecarError{Dir: filepath.Dir(s.f.Name()), Err: err}
	}
	return nil
}

// writeSums writes checksums, the first at index i.
func (s *sideFile) writeSums(i int, sums []uint32) error {
	var b []byte
	for _, sum := range sums {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	return s.write(b, s.sums+int64(4*i))
}

// finish syncs the file and renames it to its final name.
func (s *sideFile) finish() error {
	if s.temp == nil {
		return s.f.Sync() // after a repair
	}
	return s.temp.Commit()
}

// keep closes the file. It keeps an incomplete file for [resumeSidecar].
func (s *sideFile) keep() {
	if s.temp != nil {
		s.temp.Leave()
		return
	}
	_ = s.f.Close() // finish has synced it
}

// abandon closes the file and removes an incomplete one.
func (s *sideFile) abandon() {
	if s.temp != nil {
		s.temp.Discard()
		return
	}
	_ = s.f.Close() // finish has synced it
}
