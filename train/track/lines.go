package track

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/heftai/heft/internal/atomicfile"
)

// JSONL writes one JSON object per record, with the step as "step" (see [JSONValues]).
type JSONL struct{ file *os.File }

var _ Tracker = (*JSONL)(nil)

// NewJSONL opens a file for appending. It creates the file's folder, and ends a line that a killed
// run left unfinished.
func NewJSONL(path string) (*JSONL, error) {
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	return &JSONL{f}, nil
}

// openAppend opens a file of lines for appending.
func openAppend(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("track: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("track: %w", err)
	}
	var last [1]byte
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			if _, err := f.WriteString("\n"); err != nil {
				f.Close()
				return nil, fmt.Errorf("track: %w", err)
			}
		}
	}
	return f, nil
}

// Name returns the name of the tracker.
func (j *JSONL) Name() string { return "jsonl" }

// Configure writes the settings as the record {"config": {…}}.
func (j *JSONL) Configure(settings Values) error {
	if err := check(settings); err != nil {
		return err
	}
	return j.write(map[string]any{"config": JSONValues(settings)})
}

// Log writes a line.
func (j *JSONL) Log(values Values, step int) error {
	if err := check(values); err != nil {
		return err
	}
	m := JSONValues(values)
	m["step"] = step
	return j.write(m)
}

// JSONValues returns values in a form that JSON has. Numbers that JSON lacks become the strings
// "NaN", "Infinity" and "-Infinity".
func JSONValues(values Values) map[string]any {
	m := make(map[string]any, len(values)+1)
	for name, v := range values {
		if x, ok := number(v); ok {
			v = finite(x)
		} else if group, ok := v.(map[string]float64); ok {
			parts := map[string]any{}
			for part, x := range group {
				parts[part] = finite(x)
			}
			v = parts
		}
		m[name] = v
	}
	return m
}

func finite(x float64) any {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return x
}

func (j *JSONL) write(m map[string]any) error {
	b, err := json.Marshal(m)
	if err == nil {
		_, err = j.file.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// Close closes the file.
func (j *JSONL) Close() error {
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// CSV writes a table with the step as its first column and one column per name. A name that appears
// later adds a column: the file is rewritten with empty cells in earlier rows.
type CSV struct {
	path    string
	file    *os.File
	columns []string
}

var _ Tracker = (*CSV)(nil)

// NewCSV opens a table for appending. It creates the file's folder.
func NewCSV(path string) (*CSV, error) {
	rows, err := readTable(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("track: %s: %w", path, err)
	}
	c := &CSV{path: path}
	if len(rows) > 0 {
		if c.columns = rows[0]; c.columns[0] != "step" {
			return nil, fmt.Errorf("track: %s: the first column is %q, want step", path, c.columns[0])
		}
	}
	c.file, err = openAppend(path)
	return c, err
}

// readTable reads the complete rows of a table. A killed run may have left the last row incomplete.
func readTable(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = -1
	var rows [][]string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// Name returns the name of the tracker.
func (c *CSV) Name() string { return "csv" }

// Configure checks the settings and records nothing.
func (c *CSV) Configure(settings Values) error { return check(settings) }

// Log writes a row.
func (c *CSV) Log(values Values, step int) error {
	if err := check(values); err != nil {
		return err
	}
	flat := flatten(values)
	flat["step"] = step
	if err := c.widen(flat); err != nil {
		return err
	}
	row := make([]string, len(c.columns))
	for i, name := range c.columns {
		if v, ok := flat[name]; ok {
			row[i] = cell(v)
		}
	}
	return c.write(c.file, [][]string{row})
}

func cell(v any) string {
	if x, ok := number(v); ok {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// widen adds columns for the names of a row.
func (c *CSV) widen(row Values) error {
	columns := slices.Clone(c.columns)
	if len(columns) == 0 {
		columns = []string{"step"}
	}
	for _, name := range slices.Sorted(maps.Keys(row)) {
		if !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
	}
	if len(columns) == len(c.columns) {
		return nil
	}
	rows, err := readTable(c.path)
	if err != nil {
		return fmt.Errorf("track: %s: %w", c.path, err)
	}
	table := [][]string{columns}
	for _, old := range rows[min(1, len(rows)):] {
		table = append(table, append(old, make([]string, max(0, len(columns)-len(old)))...))
	}
	if err := c.replace(table); err != nil {
		return err
	}
	c.columns = columns
	return nil
}

// replace writes a new table in place of the file. The old file is closed first, because Windows
// does not replace an open one.
func (c *CSV) replace(table [][]string) error {
	closed := c.file.Close()
	err := atomicfile.Write(c.path, func(w io.Writer) error { return csv.NewWriter(w).WriteAll(table) })
	var opened error
	c.file, opened = openAppend(c.path)
	if err := errors.Join(closed, err); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return opened
}

func (c *CSV) write(to io.Writer, rows [][]string) error {
	w := csv.NewWriter(to)
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// Close closes the file.
func (c *CSV) Close() error {
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}
