package hub

import "sync"

// Progress is the progress of a pull. File is the file that changed.
type Progress struct {
	File        string
	Done, Total int64 // bytes of File
	AllDone     int64 // bytes of all files known to be needed
	AllTotal    int64
	Fetched     int64 // bytes that came over the network
}

// A meter counts the bytes of a pull and reports them, one call at a time.
type meter struct {
	mu   sync.Mutex
	tell func(Progress)
	done map[string]int64
	all  Progress
}

func newMeter(tell func(Progress)) *meter {
	return &meter{tell: tell, done: map[string]int64{}}
}

// expect adds files to the total.
func (m *meter) expect(files []file) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range files {
		m.all.AllTotal += f.size
	}
}

// have records that a file is complete.
func (m *meter) have(f file) { m.change(f, func(int64) int64 { return f.size }, 0) }

// set records how many bytes of a file are complete.
func (m *meter) set(f file, n int64) { m.change(f, func(int64) int64 { return n }, 0) }

// add records n downloaded bytes.
func (m *meter) add(f file, n int64) { m.change(f, func(was int64) int64 { return was + n }, n) }

func (m *meter) change(f file, to func(was int64) int64, fetched int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.done[f.name]
	now := to(was)
	m.done[f.name] = now
	m.all.AllDone += now - was
	m.all.Fetched += fetched
	if m.tell != nil {
		p := m.all
		p.File, p.Done, p.Total = f.name, now, f.size
		m.tell(p)
	}
}

func (m *meter) fetched() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all.Fetched
}
