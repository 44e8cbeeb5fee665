package data

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// isCSV reports whether a file's name ends in .csv.
func isCSV(path string) bool { return strings.EqualFold(filepath.Ext(path), ".csv") }

// csvColumns are the names of the columns of a CSV file. They are the keys of its records.
type csvColumns []string

// csvRecords finds the records of a CSV file whose first one names the columns.
func csvRecords(r io.Reader, visit func(number int, offset int64)) (csvColumns, error) {
	in := newCSV(r)
	columns, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	columns = slices.Clone(columns)
	columns[0] = strings.TrimPrefix(columns[0], "\ufeff") // a byte order mark, which some editors write
	for i, name := range columns {
		if slices.Contains(columns[:i], name) {
			return nil, fmt.Errorf("line 1: got the column %q twice", name)
		}
	}
	for {
		offset := in.InputOffset()
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return columns, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		if len(record) != len(columns) {
			return nil, fmt.Errorf("line %d: number of fields: got %d, want %d as in the first line", line, len(record), len(columns))
		}
		visit(line, offset)
	}
}

func newCSV(r io.Reader) *csv.Reader {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.ReuseRecord = -1, true
	return in
}

// listColumns are the columns that contain lists as JSON.
var listColumns = []string{"messages", "conversations", "tools"}

// object converts a record to a JSON object. It omits empty fields. Lists of messages are JSON, a
// label is true or false, and a margin is a number.
func (c csvColumns) object(record []byte) ([]byte, error) {
	values, err := newCSV(bytes.NewReader(record)).Read()
	if err != nil {
		return nil, err
	}
	if at := notUTF8(record); at >= 0 {
		return nil, fmt.Errorf("got byte 0x%02x, want UTF-8: convert the file with iconv", record[at])
	}
	object := map[string]json.RawMessage{}
	for i, name := range c {
		v := values[i]
		text := strings.TrimSpace(v)
		switch {
		case v == "":
		case strings.HasPrefix(text, "[") && json.Valid([]byte(text)) && (slices.Contains(listColumns, name) || strings.HasPrefix(text, `[{"`)):
			object[name] = json.RawMessage(text)
		case name == "label":
			b, err := strconv.ParseBool(text)
			if err != nil {
				return nil, fmt.Errorf("label: got %q, want true or false", v)
			}
			object[name] = strconv.AppendBool(nil, b)
		case name == "margin":
			margin, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(margin) || math.IsInf(margin, 0) {
				return nil, fmt.Errorf("margin: got %q, want a number", v)
			}
			object[name] = strconv.AppendFloat(nil, margin, 'g', -1, 64)
		default:
			if object[name], err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(object)
}
