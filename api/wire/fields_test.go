package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func fieldsOf(t *testing.T, body string) *Fields {
	t.Helper()
	f, err := ParseFields([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestErrorsNameTheFieldByItsPath: the error of a field inside an object has the whole path,
// and is the error of the body.
func TestErrorsNameTheFieldByItsPath(t *testing.T) {
	f := fieldsOf(t, `{"a": {"b": {"c": 3.5}}, "d": "x"}`)
	a, ok := f.Object("a")
	if !ok {
		t.Fatal("no a")
	}
	b, ok := a.Object("b")
	if !ok {
		t.Fatal("no a.b")
	}
	var c, d int
	b.Integer("c", &c, 0, 9)
	f.Integer("d", &d, 0, 9) // after an error nothing is read
	var e *Error
	if !errors.As(f.Err(), &e) || e.Kind != Invalid || e.Field != "a.b.c" {
		t.Fatalf("got %#v, want an error about a.b.c", f.Err())
	}
	if want := "Invalid type for 'a.b.c': expected an integer, but got a number."; e.Message != want {
		t.Errorf("got message %q, want %q", e.Message, want)
	}
	if f.Has("d") {
		t.Error("a field is read after an error")
	}
}

func TestFieldsTakeWhatPythonClientsWrite(t *testing.T) {
	f := fieldsOf(t, `{"i": 3.0, "n": null, "x": 2, "b": true, "s": "a%sb", "ids": [1, 2]}`)
	i, n, x, b, s := 0, 7, 0.0, false, ""
	var ids []int32
	f.Integer("i", &i, 0, 9)
	f.Integer("n", &n, 0, 9)
	f.Integer("missing", &n, 0, 9)
	f.Number("x", &x, 0, 9)
	f.Bool("b", &b)
	f.String("s", &s)
	f.IDs("ids", &ids, 3)
	if f.Err() != nil || i != 3 || n != 7 || x != 2 || !b || s != "a%sb" || len(ids) != 2 {
		t.Errorf("got %d %d %v %v %q %v, error %v", i, n, x, b, s, ids, f.Err())
	}
	if !f.Null("n") || f.Null("missing") || f.Null("i") {
		t.Error("Null does not tell null from missing")
	}
}

func TestFieldsRejectWrongValues(t *testing.T) {
	for body, want := range map[string]string{
		`{"v": "1"}`:                   "Invalid type for 'v': expected an integer, but got a string.",
		`{"v": 1.5}`:                   "Invalid type for 'v': expected an integer, but got a number.",
		`{"v": 10}`:                    "Invalid value for 'v': 10 is not between 0 and 9.",
		`{"v": 123456789012345678901}`: "Invalid value for 'v': 123456789012345678901 is not between 0 and 9.",
		`{"v": 1e30}`:                  "Invalid value for 'v': 1e30 is not between 0 and 9.",
	} {
		f, v := fieldsOf(t, body), 0
		f.Integer("v", &v, 0, 9)
		var e *Error
		if !errors.As(f.Err(), &e) || e.Message != want {
			t.Errorf("%s: got %v, want %q", body, f.Err(), want)
		}
	}
	for _, body := range []string{`[]`, `null`, `"a"`, `{"a":`, ``, `{} {}`} {
		if f, err := ParseFields([]byte(body)); err == nil {
			t.Errorf("%q is parsed: %v", body, f)
		}
	}
}

// TestANumberBeyondFloat64WasCalledNoNumber: the error was "expected a number, but got a number".
func TestANumberBeyondFloat64WasCalledNoNumber(t *testing.T) {
	for body, want := range map[string]string{
		`{"v": 1e400}`: "Invalid value for 'v': 1e400 is not between 0 and 2.",
		`{"v": ` + strings.Repeat("9", 400) + `}`: "Invalid value for 'v': " + strings.Repeat("9", 40) + " is not between 0 and 2.",
		`{"v": true}`: "Invalid type for 'v': expected a number, but got a boolean.",
	} {
		f, v := fieldsOf(t, body), 1.0
		f.Number("v", &v, 0, 2)
		var e *Error
		if !errors.As(f.Err(), &e) || e.Message != want || v != 1 {
			t.Errorf("%.20s: got %v and %v, want %q", body, f.Err(), v, want)
		}
	}
}

// TestUnsupportedParametersPassWithTheirDefaults: clients send the defaults of other servers.
func TestUnsupportedParametersPassWithTheirDefaults(t *testing.T) {
	list := []Unsupported{
		{Field: "p", Reason: "use q.", Off: []string{"0", "-1", `"auto"`}}, {Field: "usual", Reason: "use q."},
		{Field: "never", Reason: "use q.", Off: []string{}}, {Field: "companion", Reason: "use q.", Off: []string{"2"}, With: []string{"o", "p"}},
	}
	for _, body := range []string{
		`{"p": null}`, `{"p": 0}`, `{"p": 0.0}`, `{"p": -1}`, `{"p": "auto"}`, `{"usual": false}`, `{"usual": ""}`, `{"usual": [ ]}`, `{"usual": {}}`,
		`{"never": null}`, `{"companion": 2.0}`, `{"companion": 3, "p": 0}`, `{"other": 1}`,
	} {
		f := fieldsOf(t, body)
		if f.Refuse(list); f.Err() != nil {
			t.Errorf("%s: %v", body, f.Err())
		}
	}
	for _, c := range [][2]string{
		{"p", `1`}, {"p", `true`}, {"p", `"a"`}, {"p", `[]`}, {"p", `0.5`}, {"p", `"` + strings.Repeat(" ", 100) + `"`}, {"usual", `true`}, {"usual", `0`},
		{"usual", `[0]`}, {"never", `false`}, {"never", `""`}, {"companion", `3`}, {"companion", `3, "p": null`},
	} {
		f := fieldsOf(t, `{"`+c[0]+`": `+c[1]+`}`)
		f.Refuse(list)
		var e *Error
		if !errors.As(f.Err(), &e) || e.Field != c[0] || e.Message != "'"+c[0]+"' is not supported: use q." {
			t.Errorf("%s: got %v", c, f.Err())
		}
	}
}

func TestObjectsOfAList(t *testing.T) {
	read := func(body string) (texts []string, err error) {
		f, err := ParseFields([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		f.Objects("list", "a list of things", func(i int, in *Fields) bool {
			var s string
			in.String("a", &s)
			texts = append(texts, fmt.Sprint(i, s))
			return true
		})
		return texts, f.Err()
	}
	if texts, err := read(`{"list": [{"a": "x"}, {}, {"a": "y"}]}`); err != nil || fmt.Sprint(texts) != "[0x 1 2y]" {
		t.Errorf("got %v, %v", texts, err)
	}
	for body, at := range map[string]string{`{"list": 3}`: "list", `{"list": [{}, 3, 4]}`: "list[1]", `{"list": [{"a": 1}, 3]}`: "list[0].a"} {
		var own *Error
		if _, err := read(body); !errors.As(err, &own) || own.Field != at {
			t.Errorf("%s: %v, want an error about %s", body, err, at)
		}
	}
	if texts, err := read(`{"list": null}`); err != nil || texts != nil {
		t.Errorf("got %v, %v", texts, err)
	}
}

// TestAByteOrderMarkBeforeABody: it was a 400; some clients on Windows send one, and RFC 8259 lets parsers ignore it.
func TestAByteOrderMarkBeforeABody(t *testing.T) {
	var a string
	if fieldsOf(t, "\ufeff {\"a\": \"\ufeffx\"}").String("a", &a); a != "\ufeffx" {
		t.Errorf("got %q, want the string as it is", a)
	}
	for _, body := range []string{"\ufeff", "\ufeff\ufeff{}", " \ufeff{}", "{\ufeff}"} {
		if _, err := ParseFields([]byte(body)); err == nil {
			t.Errorf("%q is a body", body)
		}
	}
}
