package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
)

// isParquet reports whether a file is Parquet by its name.
func isParquet(path string) bool { return strings.EqualFold(filepath.Ext(path), ".parquet") }

// parquetFile has the rows of a Parquet file as JSON objects. It decodes rows in order and keeps the last ones, since
// several goroutines ask for neighbours. A row elsewhere is sought. It has one page of each column in memory.
type parquetFile struct {
	file   *os.File
	size   int64
	meta   *parquetMeta
	fields []parquetField
	firsts []int // the first row of each row group, and the number of all rows

	mu      sync.Mutex
	group   int // that cursors are in; -1 before the first
	next    int // row that the cursors are at
	cursors []*parquetCursor
	recent  []parquetRow // the oldest first
	bytes   int
}

type parquetRow struct {
	number int
	object []byte
}

// parquetRecent and parquetKeptBytes bound the rows that are kept, and parquetAhead how far a row may be to be reached by
// reading on.
const (
	parquetRecent    = 256
	parquetKeptBytes = 16 << 20
	parquetAhead     = 1024
)

// openParquet reads the metadata of a file. It leaves out columns that keys, if not nil, does not name.
func openParquet(path string, keys []string) (*parquetFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	p := &parquetFile{file: f, group: -1}
	if err := p.open(keys); err != nil {
		f.Close()
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	return p, nil
}

func (p *parquetFile) open(keys []string) error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	p.size = info.Size()
	if p.meta, err = readParquetMeta(p.file, p.size); err != nil {
		return err
	}
	columns := 0
	if p.fields, columns, err = parquetFields(p.meta.schema, keys); err != nil {
		return err
	}
	p.firsts = []int{0}
	for i, g := range p.meta.groups {
		all := int64(p.firsts[i])
		if most := rowsPerByte*p.size - all; g.rows < 0 || g.rows > most {
			return fmt.Errorf("row group %d: got %d rows, want at most %d in a file of %d bytes", i+1, g.rows, most, p.size)
		}
		if len(g.columns) != columns {
			return fmt.Errorf("row group %d: got %d columns, want %d as in the schema", i+1, len(g.columns), columns)
		}
		p.firsts = append(p.firsts, int(all+g.rows))
	}
	return nil
}

func (p *parquetFile) count() int { return p.firsts[len(p.firsts)-1] }

func (p *parquetFile) line(i int) int { return i + 1 }

// groupOf returns the row group of row i.
func (p *parquetFile) groupOf(i int) int {
	return sort.Search(len(p.firsts), func(k int) bool { return p.firsts[k] > i }) - 1
}

func (p *parquetFile) where(i int) string {
	g := p.groupOf(i)
	return fmt.Sprintf("row group %d, row %d", g+1, i-p.firsts[g]+1)
}

func (p *parquetFile) Close() error { return p.file.Close() }

func (p *parquetFile) object(i int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := slices.IndexFunc(p.recent, func(r parquetRow) bool { return r.number == i }); k >= 0 {
		object := p.recent[k].object
		p.bytes -= len(object)
		p.recent = slices.Delete(p.recent, k, k+1)
		return object, nil
	}
	object, err := p.reach(i)
	if err != nil {
		p.group = -1 // the cursors may be anywhere
	}
	return object, err
}

// reach reads rows up to row i.
func (p *parquetFile) reach(i int) ([]byte, error) {
	if g := p.groupOf(i); g != p.group || i < p.next || i > p.next+parquetAhead {
		if err := p.seek(g, i); err != nil {
			return nil, err
		}
	}
	for {
		row := p.next
		object, err := p.read()
		if err != nil || row == i {
			return object, err
		}
		p.keep(row, object)
	}
}

// keep keeps a row that will probably be asked for soon.
func (p *parquetFile) keep(row int, object []byte) {
	p.recent, p.bytes = append(p.recent, parquetRow{row, object}), p.bytes+len(object)
	for len(p.recent) > parquetRecent || len(p.recent) > 1 && p.bytes > parquetKeptBytes {
		p.bytes -= len(p.recent[0].object)
		p.recent = slices.Delete(p.recent, 0, 1)
	}
}

// seek moves the cursors to row i, in row group g.
func (p *parquetFile) seek(g, i int) error {
	p.cursors, p.group, p.next = p.cursors[:0], g, i
	for _, f := range p.fields {
		for k, leaf := range f.leaves {
			pages, err := p.meta.groups[g].columns[f.first+k].open(p.file, p.size, leaf)
			if err == nil {
				c := &parquetCursor{pages: pages}
				p.cursors, err = append(p.cursors, c), c.skip(i-p.firsts[g])
			}
			if err != nil {
				return fmt.Errorf("column %s: %w", f.name, err)
			}
		}
	}
	return nil
}

// read makes an object of the row that the cursors are at.
func (p *parquetFile) read() ([]byte, error) {
	object := []byte{'{'}
	at := 0
	for _, f := range p.fields {
		r := parquetReader{columns: p.cursors[at : at+len(f.leaves)]}
		at += len(f.leaves)
		for _, c := range r.columns {
			if err := c.row(); err != nil {
				return nil, fmt.Errorf("column %s: %w", f.name, err)
			}
		}
		value := r.value(f.node, 0)
		if r.err != nil {
			return nil, fmt.Errorf("column %s: %w", f.name, r.err)
		}
		if value = f.asList(value); value != nil {
			object = member(object, f.name, value)
		}
		if len(object) > maxLine {
			return nil, fmt.Errorf("got a row of more than %d bytes of JSON", maxLine)
		}
	}
	p.next++
	return append(object, '}'), nil
}

// parquetCursor has the values of a column, row by row.
type parquetCursor struct {
	pages   *parquetColumnPages
	page    *parquetPageValues
	at      int // of the page's values
	present int // those before at that are not null

	current []parquetValue // of the row
	used    int            // of current
}

// parquetValue is a value with its levels. Texts refer to their page.
type parquetValue struct {
	definition, repetition int
	number                 uint64
	text                   []byte
}

// ready brings a page with a value. It returns io.EOF behind the last one.
func (c *parquetCursor) ready() (err error) {
	for c.page == nil || c.at == c.page.count {
		if c.page, err = c.pages.next(); err != nil {
			c.page = nil
			return err
		}
		c.at, c.present = 0, 0
	}
	return nil
}

// begins reports whether the next value is the first one of a row.
func (c *parquetCursor) begins() bool {
	return c.page.repetitions == nil || c.page.repetitions[c.at] == 0
}

// value returns the next value.
func (c *parquetCursor) value() (v parquetValue) {
	p, leaf := c.page, c.pages.leaf
	if v.definition = leaf.most; p.definitions != nil {
		v.definition = int(p.definitions[c.at])
	}
	if p.repetitions != nil {
		v.repetition = int(p.repetitions[c.at])
	}
	c.at++
	if v.definition < leaf.most {
		return v
	}
	i := c.present
	c.present++
	if p.indices != nil {
		i = int(p.indices[i])
	}
	if leaf.physical == parquetBytes {
		v.text = p.values.texts[i]
	} else {
		v.number = p.values.numbers[i]
	}
	return v
}

var errFewRows = errors.New("got less rows than the file's metadata says")

// skip moves the cursor n rows on.
func (c *parquetCursor) skip(n int) error {
	for range n {
		if err := c.row(); err != nil {
			return err
		}
	}
	return nil
}

// row brings the values of the next row.
func (c *parquetCursor) row() error {
	c.current, c.used = c.current[:0], 0
	size := 0
	for {
		if err := c.ready(); errors.Is(err, io.EOF) && len(c.current) > 0 {
			return nil
		} else if errors.Is(err, io.EOF) {
			return errFewRows
		} else if err != nil {
			return err
		}
		if len(c.current) > 0 && c.begins() {
			return nil
		}
		v := c.value()
		c.current = append(c.current, v)
		if size += 16 + len(v.text); size > maxLine {
			return fmt.Errorf("got a row of more than %d bytes", maxLine)
		}
	}
}
