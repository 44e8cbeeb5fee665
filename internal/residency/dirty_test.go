package residency

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
)

// scratchFiles returns the scratch files in dir.
func scratchFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, atomicfile.TempPrefix+"*"+scratchName))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// changed is a segment with its expected values.
type changed struct {
	*Changed
	want []byte
}

// newChanged returns segments of different sizes in a folder, with a limit of a third of their bytes.
func newChanged(t *testing.T, count int) (*Changing, []*changed, string) {
	t.Helper()
	dir := t.TempDir()
	var list []*changed
	total := int64(0)
	for i := range count {
		g := &changed{want: bytes.Repeat([]byte{byte(i)}, 3000+i*997)}
		total += int64(len(g.want)+blockSize-1) &^ (blockSize - 1)
		list = append(list, g)
	}
	c := NewChanging(ChangingOptions{Limit: total / 3, Dir: dir})
	t.Cleanup(c.Close)
	for i, g := range list {
		first := bytes.Clone(g.want)
		g.Changed = c.Add(fmt.Sprintf("segment %d", i), int64(len(first)), func(to []byte) error {
			copy(to, first)
			return nil
		})
	}
	return c, list, dir
}

// change compares g with its expected values, and changes some of them.
func (g *changed) change(r *rand.Rand) error { return g.changeAfter(func() {}, r) }

// changeAfter is like change, but calls meanwhile once g is acquired.
func (g *changed) changeAfter(meanwhile func(), r *rand.Rand) error {
	data, err := g.Acquire()
	if err != nil {
		return err
	}
	defer g.Release()
	meanwhile()
	if !bytes.Equal(data, g.want) {
		return errors.New("holds other values")
	}
	if r != nil {
		g.MarkDirty()
		for range 20 {
			i := r.IntN(len(data))
			data[i] = byte(r.Uint32())
			g.want[i] = data[i]
		}
	}
	return nil
}

// TestChangedSegmentsLeaveMemoryAndComeBack walks segments at random, and forwards and backwards as training
// does, within a third of their memory, from several goroutines.
func TestChangedSegmentsLeaveMemoryAndComeBack(t *testing.T) {
	c, list, dir := newChanged(t, 24)
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		change := r
		if r.IntN(2) == 0 {
			change = nil
		}
		if i := r.IntN(len(list)); list[i].change(change) != nil {
			t.Fatal(i, list[i].change(nil))
		}
	}
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(worker)))
			for step := range 6 {
				for i := range list {
					if step%2 == 1 {
						i = len(list) - 1 - i
					}
					if i%3 == worker { // a segment that is written belongs to one goroutine
						if err := list[i].change(r); err != nil {
							t.Errorf("segment %d: %v", i, err)
						}
					}
				}
			}
		})
	}
	all.Wait()
	st := c.Stats()
	if st.Peak > c.limit || st.Read == 0 || st.Written == 0 {
		t.Errorf("with a limit of %d: %+v", c.limit, st)
	}
	if n := len(scratchFiles(t, dir)); n != 1 {
		t.Errorf("%d scratch files, want 1", n)
	}
	c.Close()
	if names := scratchFiles(t, dir); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestSegmentsThatAreNotChangedAreNotWritten: they are read from their source again.
func TestSegmentsThatAreNotChangedAreNotWritten(t *testing.T) {
	c, list, dir := newChanged(t, 12)
	for range 3 {
		for i, g := range list {
			if err := g.change(nil); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	if st := c.Stats(); st.Written != 0 || len(scratchFiles(t, dir)) > 0 {
		t.Errorf("%+v, files %v", st, scratchFiles(t, dir))
	}
}

// TestAFullDiskLosesNoChange: writing an evicted segment fails, also after a part of it. The step
// fails with the reason, no change is lost, and the step continues once there is room.
func TestAFullDiskLosesNoChange(t *testing.T) {
	c, list, _ := newChanged(t, 24)
	r := rand.New(rand.NewPCG(5, 6))
	if err := c.scratch.open(); err != nil {
		t.Fatal(err)
	}
	write := c.scratch.write
	var full atomic.Bool
	c.scratch.write = func(buf []byte, off int64) error {
		if !full.Load() {
			return write(buf, off)
		}
		if err := write(buf[:len(buf)/2&^(blockSize-1)], off); err != nil {
			return err
		}
		return &os.PathError{Op: "write", Path: "scratch", Err: syscall.ENOSPC}
	}
	failures := 0
	for step := range 8 {
		full.Store(step%2 == 1)
		for i, g := range list {
			err := g.change(r)
			if err == nil {
				continue
			}
			failures++
			if !full.Load() || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "was changed and cannot leave memory") || !strings.Contains(err.Error(), "free space there") {
				t.Fatalf("step %d, segment %d: %v", step, i, err)
			}
		}
		if full.Load() && c.Stats().Held > c.limit {
			t.Errorf("the disk is full and memory exceeds the limit: %+v", c.Stats())
		}
	}
	full.Store(false)
	for i, g := range list {
		if err := g.change(nil); err != nil {
			t.Errorf("segment %d: %v", i, err)
		}
	}
	if failures == 0 {
		t.Error("no write failed")
	}
}

// TestAScratchFileThatWasChangedIsNoticed: segments read from the scratch file are verified.
func TestAScratchFileThatWasChangedIsNoticed(t *testing.T) {
	_, list, dir := newChanged(t, 24)
	r := rand.New(rand.NewPCG(7, 8))
	for _, g := range list {
		if err := g.change(r); err != nil {
			t.Fatal(err)
		}
	}
	path := scratchFiles(t, dir)[0]
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{list[0].want[99] + 1}, list[0].off+99)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := list[0].change(nil); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "segment 0") {
		t.Errorf("got %v", err)
	}
	if err := list[1].change(nil); err != nil {
		t.Error(err)
	}
}

// holdScratch is the environment variable with the folder in which this test program, as another process,
// writes a scratch file.
const holdScratch = "RESIDENCY_TEST_SCRATCH"

// TestHoldScratch is the body of that process. It waits to be killed.
func TestHoldScratch(t *testing.T) {
	dir := os.Getenv(holdScratch)
	if dir == "" {
		return // it is not that process
	}
	c := NewChanging(ChangingOptions{Limit: blockSize, Dir: dir})
	for range 2 { // the first leaves
		g := c.Add("segment", blockSize, nil)
		if _, err := g.Acquire(); err != nil {
			t.Fatal(err)
		}
		g.MarkDirty()
		g.Release()
	}
	fmt.Println("written")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// TestScratchFilesOfAKilledProcessAreRemoved: the next process that uses the folder removes them,
// but only after the process has ended.
func TestScratchFilesOfAKilledProcessAreRemoved(t *testing.T) {
	dir := t.TempDir()
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHoldScratch$")
	holder.Env = append(os.Environ(), holdScratch+"="+dir)
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "written\n" {
		t.Fatal(line, err)
	}
	NewChanging(ChangingOptions{Dir: dir}).Close()
	if n := len(scratchFiles(t, dir)); n != 1 {
		t.Errorf("%d scratch files of a process that lives, want 1", n)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // killed
	if n := len(scratchFiles(t, dir)); n != 1 {
		t.Fatalf("the process left %d scratch files, want 1", n)
	}
	NewChanging(ChangingOptions{Dir: dir}).Close()
	if names := scratchFiles(t, dir); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestWithoutAFolderChangedSegmentsStayInMemory: without a folder, changed segments stay in memory, and
// the error names the way out.
func TestWithoutAFolderChangedSegmentsStayInMemory(t *testing.T) {
	c := NewChanging(ChangingOptions{Limit: blockSize})
	defer c.Close()
	a, b := c.Add("a", blockSize, nil), c.Add("b", blockSize, nil)
	if _, err := a.Acquire(); err != nil {
		t.Fatal(err)
	}
	a.MarkDirty()
	a.Release()
	if _, err := b.Acquire(); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("got %v", err)
	}
}
