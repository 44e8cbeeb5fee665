package data

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const parquetDir = "testdata/parquet"

// sameRecords compares the records of a Parquet file with those of a JSONL file.
func sameRecords[T any](t *testing.T, got, want interface {
	Dataset[T]
	Close() error
}) {
	t.Helper()
	defer got.Close()
	defer want.Close()
	if got.Len() != want.Len() || got.Len() == 0 {
		t.Fatalf("got %d records, want %d", got.Len(), want.Len())
	}
	for i := range got.Len() {
		x, err := got.At(i)
		if err != nil {
			t.Fatal(err)
		}
		y, err := want.At(i)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%s", normal(x)) != fmt.Sprintf("%s", normal(y)) {
			t.Fatalf("record %d: got %s, want %s", i, normal(x), normal(y))
		}
	}
}

// normal returns a record with pointers followed.
func normal(v any) any {
	x := reflect.ValueOf(v)
	if x.Kind() == reflect.Pointer && !x.IsNil() {
		return normal(x.Elem().Interface())
	}
	if x.Kind() != reflect.Struct {
		return v
	}
	var all []any
	for i := range x.NumField() {
		if x.Type().Field(i).IsExported() && x.Type().Field(i).Name != "JSON" {
			all = append(all, normal(x.Field(i).Interface()))
		}
	}
	return all
}

// TestParquetFilesAreRecords compares files that pyarrow wrote with the same records in JSONL: nested lists, maps and
// nulls, several row groups and pages, dictionaries, deltas, pages of both versions, and all compressions.
func TestParquetFilesAreRecords(t *testing.T) {
	at := func(name string) string { return filepath.Join(parquetDir, name) }
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for _, name := range []string{"chat", "text", "prompts", "alpaca", "shared"} {
		t.Run(name, func(t *testing.T) {
			got, err := OpenJSONL(at(name + ".parquet"))
			must(err)
			want, err := OpenJSONL(at(name + ".jsonl"))
			must(err)
			sameRecords[Record](t, got, want)
		})
	}
	pairs, err := OpenComparisons(at("pairs.parquet"))
	must(err)
	wantPairs, err := OpenComparisons(at("pairs.jsonl"))
	must(err)
	if c, err := pairs.At(3); err != nil || c.Margin != 0.75 {
		t.Errorf("got %+v, %v; want a margin of 0.75", c, err)
	}
	sameRecords[ComparisonRecord](t, pairs, wantPairs)
	groups, err := OpenGroups(at("groups.parquet"))
	must(err)
	wantGroups, err := OpenGroups(at("groups.jsonl"))
	must(err)
	if g, err := groups.At(2); err != nil || string(g.JSON) != `{"prompt":"p 2","completions":["a","b","c"],"rewards":[0.5,null,-1],"answer":2}` {
		t.Errorf("got %s, %v", g.JSON, err)
	}
	sameRecords[GroupRecord](t, groups, wantGroups)
}

// TestParquetRowsInAnyOrder reads rows backwards, in jumps and from several goroutines.
func TestParquetRowsInAnyOrder(t *testing.T) {
	d, err := OpenJSONL(filepath.Join(parquetDir, "text.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(i int) {
		r, err := d.At(i)
		if err != nil || !strings.HasPrefix(*r.Text, fmt.Sprintf("text number %d ", i)) {
			t.Errorf("row %d: %v, %v", i, r.Text, err)
		}
	}
	for i := d.Len() - 1; i >= 0; i-- {
		check(i)
	}
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range d.Len() {
				check((i*7 + w*11) % d.Len())
			}
		})
	}
	all.Wait()
	if d.Where(17) != "row group 2, row 2" || d.Line(17) != 18 {
		t.Errorf("got %s, line %d", d.Where(17), d.Line(17))
	}
}

// TestParquetErrorsNameTheirPlace: errors have the file, the row group with the row, and the column or key.
func TestParquetErrorsNameTheirPlace(t *testing.T) {
	for _, c := range []struct {
		file string
		row  int
		want string
	}{
		{"numbers.parquet", 2, "numbers.parquet: row group 2, row 1: text: got a number, want a string"},
		{"bytes.parquet", 1, "bytes.parquet: row group 1, row 2: column text: got bytes that are not UTF-8"},
		{"other.parquet", -1, "other.parquet: got no column of a record"},
		{"absent.parquet", -1, "absent.parquet"},
	} {
		d, err := OpenJSONL(filepath.Join(parquetDir, c.file))
		if err == nil {
			_, err = d.At(c.row)
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.file, err, c.want)
		}
	}
}

// readAll opens a file of these bytes and reads its records.
func readAll(t testing.TB, b []byte) error {
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenJSONL(path)
	if err != nil {
		return err
	}
	defer d.Close()
	for i := range d.Len() {
		if _, err := d.At(i); err != nil {
			return err
		}
	}
	return nil
}

// TestDamagedParquetFiles: files that are cut short or changed in a byte end with an error or with other records, and
// take little memory, whatever they say about sizes.
func TestDamagedParquetFiles(t *testing.T) {
	for _, name := range []string{"chat", "prompts", "alpaca"} {
		whole, err := os.ReadFile(filepath.Join(parquetDir, name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if err := readAll(t, whole); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(whole); n += 1 + len(whole)/20 {
			if readAll(t, whole[:n]) == nil {
				t.Errorf("%s: %d of %d bytes are read without an error", name, n, len(whole))
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := len(whole) - 8; i > 0; i -= 1 + i/150 { // more of the metadata, which is at the end
			b := bytes.Clone(whole)
			b[i] ^= []byte{0xff, 0x10, 0x01}[i%3]
			_ = readAll(t, b) // it may be harmless
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 512<<20 {
				t.Fatalf("%s: byte %d as %#x allocates %d MiB", name, i, b[i], used>>20)
			}
			before = after
		}
	}
}

// TestHostileParquetFiles: files of some hundred bytes whose numbers claim gigabytes take no memory to speak of. The
// libraries that were tried allocate what such numbers say, which ends the process.
func TestHostileParquetFiles(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(parquetDir, "hostile", "*.parquet"))
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d hostile files, %v; want 12", len(paths), err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = readAll(t, b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%s allocates %d MiB", filepath.Base(path), used>>20)
		}
		if name := filepath.Base(path); err == nil && name != "level-runs.parquet" && name != "index-run.parquet" {
			t.Errorf("%s is read without an error", name)
		}
	}
}

// FuzzParquet reads arbitrary bytes.
func FuzzParquet(f *testing.F) {
	for _, name := range []string{"chat", "text", "prompts", "alpaca", "groups"} {
		b, err := os.ReadFile(filepath.Join(parquetDir, name+".parquet"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _ = readAll(t, b) })
}
