package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// Record is one line of a JSONL file: a text, a prompt with its completion, or a conversation.
// Other forms are converted to conversations: TRL's prompt and completion of messages, of which
// only the completion is learned; ShareGPT's conversations; and Alpaca's instruction, input and
// output, where the user's message is the instruction followed by the input on the next line. Other
// keys are ignored.
type Record struct {
	Text       *string           `json:"text,omitempty"`
	Prompt     *string           `json:"prompt,omitempty"`
	Completion *string           `json:"completion,omitempty"`
	Messages   []json.RawMessage `json:"messages,omitempty"`
	Tools      json.RawMessage   `json:"tools,omitempty"`

	completed bool // only the last message, TRL's completion, is learned
}

// maxLine limits a line, so that a file that is not JSONL is not read into memory.
const maxLine = 64 << 20

// recordForms are the forms of a record, with the keys that identify them.
var recordForms = []struct {
	keys []string
	read func(*Record, fields) error
}{
	{[]string{"text"}, func(r *Record, f fields) (err error) { r.Text, err = f.text("text"); return err }},
	{[]string{"prompt", "completion"}, (*Record).prompted},
	{[]string{"messages"}, func(r *Record, f fields) (err error) { r.Messages, err = f.messages("messages"); return err }},
	{[]string{"conversations"}, (*Record).shareGPT},
	{[]string{"instruction"}, (*Record).alpaca},
}

// recordKeys are the keys that a record may have.
var recordKeys = []string{"text", "prompt", "completion", "messages", "conversations", "instruction", "input", "output", "system", "history", "tools", "chosen", "rejected"}

func parseRecord(line []byte) (Record, error) {
	f, err := readFields(line)
	if err != nil {
		return Record{}, err
	}
	if f.has("chosen") && f.has("rejected") && !f.has("text", "messages", "conversations", "completion") {
		return Record{}, errors.New("got chosen and rejected, which are compared: use train run --method dpo, or data.OpenComparisons")
	}
	var read func(*Record, fields) error
	for _, form := range recordForms {
		switch {
		case !f.has(form.keys...):
		case form.keys[0] == "prompt" && !f.has("completion") && f.has("messages", "conversations"): // a column of another form
		case form.keys[0] == "instruction" && read != nil: // a column of another form
		case read != nil:
			return Record{}, errors.New("got more than one of text, prompt and completion, messages, and conversations")
		default:
			read = form.read
		}
	}
	if read == nil {
		return Record{}, errors.New("want text, or prompt and completion, or messages, conversations (ShareGPT), or instruction and output (Alpaca)")
	}
	var r Record
	if r.Tools, err = f.tools(); err != nil {
		return Record{}, err
	}
	if err := read(&r, f); err != nil {
		return Record{}, err
	}
	return r, nil
}

// Tokenize makes a sequence of r according to its form. t may be nil if r is not a conversation.
func (r Record) Tokenize(e Encoder, t Template, o TextOptions) (Sequence, error) {
	o.LastAnswer = o.LastAnswer || r.completed
	switch {
	case r.Text != nil:
		return TokenizeText(e, *r.Text, o)
	case r.Messages != nil && t == nil:
		return Sequence{}, errors.New("data: tokenize: got a conversation, but the model has no chat template")
	case r.Messages != nil:
		return TokenizeChat(e, t, r.Messages, r.Tools, o)
	case r.Prompt != nil && r.Completion != nil:
		return TokenizePrompt(e, *r.Prompt, *r.Completion, o)
	}
	return Sequence{}, errors.New("data: tokenize: got an empty record")
}

// lines walks the lines of r that are not blank, with their number from 1 and their offset.
func lines(r io.Reader, visit func(line []byte, number int, offset int64) bool) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var line []byte
	var offset int64
	for number := 1; ; {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return fmt.Errorf("line %d is longer than %d bytes", number, maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if text := bytes.TrimSpace(line); len(text) > 0 && !visit(text, number, offset) || err != nil {
			return nil
		}
		offset += int64(len(line))
		line = line[:0]
		number++
	}
}

// ReadJSONL yields the records of r, one per line, and skips blank lines. An error names the line
// and ends the walk.
func ReadJSONL(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := false
		err := lines(r, func(line []byte, number int, _ int64) bool {
			record, err := parseRecord(line)
			if err != nil {
				err = fmt.Errorf("data: line %d: %w", number, err)
			}
			stopped = !yield(record, err) || err != nil
			return !stopped
		})
		if err != nil && !stopped {
			yield(Record{}, fmt.Errorf("data: %w", err))
		}
	}
}

// JSONL is a Dataset of the records of a file. [OpenJSONL] makes one. At reads the record from the
// file each time, so memory does not grow with the records' texts. All methods but Close are safe for
// concurrent use. The file must not change until Close.
type JSONL struct{ recordFile[Record] }

// OpenJSONL opens a file of [Record]. It finds the lines of a JSONL file, the elements of a file
// that is one JSON list, the records of a CSV file (.csv), whose first line names the keys, or the
// rows of a Parquet file (.parquet). It parses no record: At does, and reports records of a wrong
// form. JSON and CSV files are read once and take about 24 bytes of memory per record. Of Parquet
// files only the metadata is read, and columns of other keys are never read. OpenJSONL fails if the
// file cannot be read, if a line is longer than 64 MiB, if a CSV record has more or fewer fields
// than the first line, or if Parquet metadata is damaged or has unsupported types. A file without
// records has length 0. The caller closes the JSONL.
func OpenJSONL(path string) (*JSONL, error) {
	r, err := openRecords(path, recordKeys, parseRecord)
	if err != nil {
		return nil, err
	}
	return &JSONL{*r}, nil
}

// recordFile is a data set of a file's records.
type recordFile[T any] struct {
	name   string
	source recordSource
	parse  func(object []byte) (T, error)
}

// recordSource has the records of a file as JSON objects. It is safe for concurrent use.
type recordSource interface {
	count() int
	object(i int) ([]byte, error)
	// where returns the place of record i, such as "line 3". line returns its line or row, from 1.
	where(i int) string
	line(i int) int
	Close() error
}

// openRecords opens a file of JSON lines, CSV or Parquet. keys limits the columns read from Parquet
// files; nil reads all.
func openRecords[T any](path string, keys []string, parse func(object []byte) (T, error)) (*recordFile[T], error) {
	d := &recordFile[T]{name: path, parse: parse}
	var err error
	if isParquet(path) {
		d.source, err = openParquet(path, keys)
	} else {
		d.source, err = openLines(path)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Len returns the number of records.
func (d *recordFile[T]) Len() int { return d.source.count() }

// Close closes the file. Do not call At during it or after it.
func (d *recordFile[T]) Close() error { return d.source.Close() }

// Line returns the number of the line that record i begins at, or of its row in a Parquet file. Both
// count from 1. It panics if i is out of range.
func (d *recordFile[T]) Line(i int) int { return d.source.line(i) }

// Where returns the place of record i, such as "line 3", or "row group 1, row 17" in a Parquet
// file. Both count from 1. Errors of At name this place. It panics if i is out of range.
func (d *recordFile[T]) Where(i int) string { return d.source.where(i) }

// At reads and parses record i, from 0. The result shares no memory with those of other calls. At
// fails if i is out of range, if reading fails, or if the record has no known form. The error names
// the file and the place, and At may be called again. A record costs one read of its line. Rows of
// a Parquet file are cheap in the file's order; any other row costs a search from the start of its
// row group.
func (d *recordFile[T]) At(i int) (T, error) {
	var none T
	if i < 0 || i >= d.Len() {
		return none, fmt.Errorf("data: got record %d, want 0 to %d", i, d.Len()-1)
	}
	object, err := d.source.object(i)
	if err != nil {
		return none, fmt.Errorf("data: %s: %s: %w", d.name, d.source.where(i), err)
	}
	r, err := d.parse(object)
	if err != nil {
		return r, fmt.Errorf("data: %s: %s: %w", d.name, d.source.where(i), err)
	}
	return r, nil
}

// lineFile is a file of lines, or of CSV records.
type lineFile struct {
	file    *os.File
	places  []place
	columns csvColumns // nil for lines
}

type place struct {
	offset       int64
	size, number int
}

func openLines(path string) (*lineFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("data: %s: got a folder, want a JSONL, CSV or Parquet file", path)
	}
	d := &lineFile{file: f}
	list := isList(f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, fmt.Errorf("data: %w", err)
	}
	if list && !isCSV(path) {
		if err := listItems(f, func(number int, offset int64, size int) { d.places = append(d.places, place{offset, size, number}) }); err != nil {
			f.Close()
			return nil, fmt.Errorf("data: %s: %w", path, err)
		}
		return d, nil
	}
	if isCSV(path) {
		d.columns, err = csvRecords(f, func(number int, offset int64) { d.places = append(d.places, place{offset, 0, number}) })
	} else {
		err = lines(f, func(line []byte, number int, offset int64) bool {
			d.places = append(d.places, place{offset, 0, number})
			return true
		})
	}
	if err == nil {
		err = d.measure()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	return d, nil
}

// measure extends each place up to the next one, blank lines included.
func (d *lineFile) measure() error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	end := info.Size()
	for i := len(d.places) - 1; i >= 0; i-- {
		d.places[i].size = int(end - d.places[i].offset)
		end = d.places[i].offset
	}
	return nil
}

func (d *lineFile) count() int         { return len(d.places) }
func (d *lineFile) Close() error       { return d.file.Close() }
func (d *lineFile) line(i int) int     { return d.places[i].number }
func (d *lineFile) where(i int) string { return fmt.Sprintf("line %d", d.places[i].number) }

func (d *lineFile) object(i int) ([]byte, error) {
	p := d.places[i]
	line := make([]byte, p.size)
	if _, err := d.file.ReadAt(line, p.offset); err != nil {
		return nil, err
	}
	if isCSV(d.file.Name()) {
		return d.columns.object(line)
	}
	return line, nil
}

// mapped computes samples from those of another data set on request.
type mapped[T, U any] struct {
	from Dataset[T]
	f    func(T) (U, error)
}

// Map returns a data set of f's results. f runs each time a sample is requested, possibly in
// several goroutines. Epochs are passed to from.
func Map[T, U any](from Dataset[T], f func(T) (U, error)) Dataset[U] { return mapped[T, U]{from, f} }

func (m mapped[T, U]) Len() int           { return m.from.Len() }
func (m mapped[T, U]) SetEpoch(epoch int) { setEpoch(m.from, epoch) }

func (m mapped[T, U]) At(i int) (U, error) {
	x, err := m.from.At(i)
	if err != nil {
		var none U
		return none, err
	}
	return m.f(x)
}

// All reads a whole data set into memory.
func All[T any](from Dataset[T]) (Slice[T], error) {
	all := make(Slice[T], from.Len())
	for i := range all {
		x, err := from.At(i)
		if err != nil {
			return nil, fmt.Errorf("data: sample %d: %w", i, err)
		}
		all[i] = x
	}
	return all, nil
}
