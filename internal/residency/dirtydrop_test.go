package residency

import (
	"strings"
	"testing"
)

// TestADroppedSegmentIsZerosAndIsNotWritten: in memory, in the scratch file or in its source.
func TestADroppedSegmentIsZerosAndIsNotWritten(t *testing.T) {
	c := NewChanging(ChangingOptions{Limit: blockSize, Dir: t.TempDir()})
	defer c.Close()
	a, b := c.Add("a", blockSize, nil), c.Add("b", blockSize, nil)
	fill := func(g *Changed, v byte) byte {
		t.Helper()
		data, err := g.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer g.Release()
		g.MarkDirty()
		was := data[7]
		data[7] = v
		return was
	}
	fill(a, 1)
	a.Drop()
	if st := c.Stats(); st.Held != 0 || st.Written != 0 {
		t.Errorf("after a drop from memory: %+v", st)
	}
	fill(a, 2)
	fill(b, 3) // a leaves for the file
	a.Drop()
	if was := fill(a, 4); was != 0 {
		t.Errorf("after a drop from the file: got %d, want 0", was)
	}
	if was := fill(b, 5); was != 3 {
		t.Errorf("the other segment: got %d, want 3", was)
	}
}

// TestSegmentsThatStay: they are not evicted for others, and they count towards the limit.
func TestSegmentsThatStay(t *testing.T) {
	c := NewChanging(ChangingOptions{Limit: 2 * blockSize, Dir: t.TempDir()})
	defer c.Close()
	var list []*Changed
	for i := range 4 {
		g := c.Add("segment", blockSize, nil)
		if list = append(list, g); i == 0 {
			g.Stay()
		}
		if _, err := g.Acquire(); err != nil {
			t.Fatal(err)
		}
		g.Release()
	}
	if list[0].place != inMemory || list[1].place != inFile || list[3].place != inMemory {
		t.Errorf("places %d, %d and %d", list[0].place, list[1].place, list[3].place)
	}
	c.SetLimit(blockSize)
	if _, err := list[2].Acquire(); err != nil || list[3].place != inFile || c.Stats().Held != 2*blockSize {
		t.Errorf("after SetLimit: %v, %+v", err, c.Stats())
	}
	list[2].Release()
}

// TestTheScratchFileHasALimit: at the limit no changed segment can be evicted, as with a full disk.
func TestTheScratchFileHasALimit(t *testing.T) {
	c := NewChanging(ChangingOptions{Limit: blockSize, Dir: t.TempDir(), MaxDisk: blockSize})
	defer c.Close()
	var err error
	n := 0
	for ; n < 4 && err == nil; n++ {
		g := c.Add("segment", blockSize, nil)
		if _, err = g.Acquire(); err == nil {
			g.MarkDirty()
			g.Release()
		}
	}
	if n != 3 || err == nil || !strings.Contains(err.Error(), "at most 4096") {
		t.Errorf("segment %d: %v", n, err)
	}
	c.SetMaxDisk(0)
	if _, err := c.Add("another", blockSize, nil).Acquire(); err != nil {
		t.Errorf("without the limit: %v", err)
	}
}

// TestTheScratchFileReusesPlaces: a segment that is changed in memory, or dropped, has no place in
// the file. The file thus holds about as much as memory does not.
func TestTheScratchFileReusesPlaces(t *testing.T) {
	const held, count = 5, 12
	c := NewChanging(ChangingOptions{Limit: held * blockSize, Dir: t.TempDir()})
	defer c.Close()
	var list []*Changed
	for range count {
		list = append(list, c.Add("segment", blockSize, nil))
	}
	for step := range byte(20) {
		for i, g := range list {
			data, err := g.Acquire()
			if err != nil {
				t.Fatal(err)
			}
			want := step
			if i%4 == 0 { // it was dropped
				want = 0
			}
			if data[9] != want {
				t.Fatalf("step %d, segment %d: got %d, want %d", step, i, data[9], want)
			}
			g.MarkDirty()
			data[9] = step + 1
			g.Release()
			c.settle()
		}
		for i := 0; i < count; i += 4 {
			list[i].Drop()
		}
	}
	// A segment has one place at most. How many have one at once depends on reads ahead.
	if most := int64(count) * blockSize; c.scratch.end > most {
		t.Errorf("got a scratch file of %d bytes, want at most %d", c.scratch.end, most)
	}
}
