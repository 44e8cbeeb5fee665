package residency

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
)

// A scratch is a temporary file for changed segments. The first write creates it, and its process
// holds a lock on it. The next start in the same folder removes the files of killed processes.
// close removes the file.
type scratch struct {
	dir string

	mu   sync.Mutex
	temp *atomicfile.File
	file *hostmem.DirectFile
	end  int64             // bytes of the file
	most int64             // maximum of end; 0 means no limit
	free map[int64][]int64 // unused places, by size

	// write is the file's write, or a replacement of a test.
	write func(buf []byte, off int64) error
}

// scratchName is the suffix of the names of scratch files.
const scratchName = "residency.scratch"

// newScratch removes the scratch files of killed processes from dir.
func newScratch(dir string, most int64) *scratch {
	atomicfile.RemoveStale(dir)
	return &scratch{dir: dir, most: most}
}

// open creates the file.
func (s *scratch) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		return nil
	}
	if s.dir == "" {
		return errors.New("changed weights exceed the memory limit, and there is no folder for a scratch file")
	}
	temp, err := atomicfile.Create(filepath.Join(s.dir, scratchName))
	if err != nil {
		return fmt.Errorf("scratch file: %w", err)
	}
	file, err := hostmem.OpenDirectWrite(temp.Name())
	if err != nil {
		temp.Discard()
		return fmt.Errorf("scratch file: %w", err)
	}
	s.temp, s.file = temp, file
	if s.write == nil {
		s.write = file.WriteAt
	}
	return nil
}

// place returns the offset of n free bytes.
func (s *scratch) place(n int64) (off int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.free[n]; len(list) > 0 {
		s.free[n] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	off = s.end
	if s.most > 0 && off+n > s.most {
		return 0, fmt.Errorf("scratch file %s: got %d bytes, want at most %d", s.file.Path(), off+n, s.most)
	}
	s.end += n
	return off, nil
}

// leave frees a place.
func (s *scratch) leave(off, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.free = map[int64][]int64{}
	}
	s.free[n] = append(s.free[n], off)
}

// close removes the file. No read or write may be in flight.
func (s *scratch) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close() // its contents are not needed
	s.temp.Discard()
	s.file = nil
}

// A scratchMove is the source of a segment that is read from or written to the scratch file.
type scratchMove struct {
	scratch  *scratch
	data     []byte // whole blocks
	off      int64
	request  int64
	out      bool
	transfer move
	ended    chan error
}

func (v *scratchMove) prepare() error { return nil }

func (v *scratchMove) read(piece int) error {
	begin := int64(piece) * v.request
	data := v.data[begin:min(begin+v.request, int64(len(v.data)))]
	if v.out {
		return v.scratch.write(data, v.off+begin)
	}
	_, err := v.scratch.file.ReadAt(data, v.off+begin, int64(len(data)))
	return err
}

// run reads data from the file, or writes it if out is set, and waits.
func (s *scratch) run(m *Mover, data []byte, off int64, out bool) error {
	_, request := m.Depth()
	v := &scratchMove{scratch: s, data: data, off: off, request: request, out: out, ended: make(chan error, 1)}
	v.transfer = move{source: v, pieces: int((int64(len(data)) + request - 1) / request), done: func(err error) { v.ended <- err }}
	m.submit(&v.transfer, Demand)
	return <-v.ended
}

// checksum returns the checksum of a segment in the scratch file.
func checksum(data []byte) uint32 { return crc32.Checksum(data, sideTable) }
