package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestFieldsAreFoundWithoutCopies: fields are found as encoding/json finds them, and not copied.
func TestFieldsAreFoundWithoutCopies(t *testing.T) {
	for _, body := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a" : 1 , "b":[1,{"c":"}]"}],"a":"last"}`, `{"\u0061":"\\\"","":null,"x":{"y":[]} }`,
		`{"a":-1.5e3,"b":true,"c":"\\"}`, `{"s":"a\"b","t":[[],[[]]]}`, "{\n\t\"a\":\r1}",
	} {
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		got, ok := members([]byte(body))
		if !ok || !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s: %v", body, got)
		}
		for name := range want {
			if string(got[name]) != string(want[name]) {
				t.Errorf("%s: %s is %s", body, name, got[name])
			}
		}
	}
	body := []byte(`{"a":[1,2]}`)
	f, err := ParseFields(body)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := f.Raw("a"); &raw[0] != &body[5] {
		t.Error("a field was copied")
	}
}

// TestAListIsDecodedUpToItsFault: a list of sixteen million empty messages was decoded whole before
// the first was looked at.
func TestAListIsDecodedUpToItsFault(t *testing.T) {
	for list, want := range map[string]int{`[]`: 0, `[1]`: 1, ` [ {} , [ ] ,"],", null ] `: 4, `[{"a":[1,2]},3]`: 2} {
		f, _ := ParseFields([]byte(`{"l":` + list + `}`))
		var got []string
		f.Each("l", "a list", func(i int, raw json.RawMessage) bool {
			if i != len(got) || !json.Valid(raw) {
				t.Errorf("%s: element %d is %s", list, i, raw)
			}
			got = append(got, string(raw))
			return true
		})
		if len(got) != want || f.Err() != nil {
			t.Errorf("%s: %q, %v", list, got, f.Err())
		}
	}
	m := NewMemory(1<<20, nil)
	c, _ := m.claim(t.Context(), 0)
	f, _ := ParseFields([]byte(`{"l":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`))
	f.CountIn(c)
	seen := 0
	f.Each("l", "a list", func(i int, _ json.RawMessage) bool {
		seen++
		f.FailAt("l[0]", "bad")
		return true
	})
	if seen != 1 || c.work > 2*objectBytes {
		t.Errorf("%d elements were read, with %d bytes", seen, c.work)
	}
	f, _ = ParseFields([]byte(`{"l":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`))
	f.CountIn(c)
	if _, ok := f.Raw("l"); ok {
		t.Error("a list that takes half a GiB was decoded within one MiB")
	}
	var own *Error
	if !errors.As(f.Err(), &own) || own.Kind != TooLarge {
		t.Errorf("%v", f.Err())
	}
}

// TestManyFieldsAreRefused: each field of an object takes memory, whatever its name.
func TestManyFieldsAreRefused(t *testing.T) {
	var b strings.Builder
	for i := range maxFields + 1 {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	if _, err := ParseFields([]byte("{" + b.String()[1:] + "}")); err == nil || !strings.Contains(err.Error(), "fields") {
		t.Error(err)
	}
	f, err := ParseFields([]byte(`{"o":{` + b.String()[1:] + "}}"))
	if _, ok := f.Object("o"); ok || err != nil || f.Err() == nil {
		t.Errorf("inside: %v, %v", err, f.Err())
	}
}
