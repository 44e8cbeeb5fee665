package fetch

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDefaultsAreOfKernels(t *testing.T) {
	for _, vendor := range []string{"", "GenuineIntel", "AuthenticAMD"} {
		if err := Default(vendor).Check(); err != nil {
			t.Errorf("%q: %v", vendor, err)
		}
	}
	if p := Default("AuthenticAMD"); p[Pairs] != (Pattern{Rows: 1, Prefetch: true}) || p[Q8] != (Pattern{Rows: 1, Prefetch: true}) || p[Q4] != (Pattern{Rows: 1}) || p[CodedPairs] != (Pattern{Rows: 1}) {
		t.Errorf("the default for AMD is %v, want 1 row for one token, with prefetch of pairs, q8 and coded pairs", p)
	}
	if p := Default("GenuineIntel"); p[Floats] != (Pattern{Rows: 8, Prefetch: true}) || !p[Tokens].Prefetch {
		t.Errorf("the default for Intel is %v, want 8 rows with prefetch", p)
	}
}

func TestUse(t *testing.T) {
	defer Use(Current())
	p := Default("AuthenticAMD")
	Use(p)
	if Current() != p || Rows(Q4) != 1 || prefetch[Q4] != 1 || prefetch[Tokens] != 0 {
		t.Errorf("the plan is %v, %d rows, flags %v", Current(), Rows(Q4), prefetch)
	}
	forms := Forms[string]{"eight", "four", "one"}
	if got := forms.For(Q4); got != "one" {
		t.Errorf("the form is %s", got)
	}
	Use(Default(""))
	if got := forms.For(Q4) + forms.For(Pairs); got != "eightfour" || prefetch != [Roles]uint8{} {
		t.Errorf("the forms are %s, flags %v", got, prefetch)
	}
	p[Q8] = Pattern{Rows: 4, Prefetch: true, Near: true}
	Use(p)
	if prefetch[Q8] != 2 || Current()[Q8].String() != "4 rows, near prefetch" {
		t.Errorf("flags %v, pattern %v, want near prefetch of q8", prefetch, Current()[Q8])
	}
	defer func() {
		if recover() == nil {
			t.Error("a plan that kernels lack was used")
		}
	}()
	Use(Plan{})
}

func TestPlanAsJSON(t *testing.T) {
	p := Default("AuthenticAMD")
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read Plan
	if err := json.Unmarshal(text, &read); err != nil || read != p {
		t.Errorf("%s was read as %v, %v", text, read, err)
	}
	for bad, want := range map[string]string{
		`{}`: "no pattern for floats",
		strings.Replace(string(text), `"q8"`, `"q7"`, 1):                     "no pattern for q8",
		strings.Replace(string(text), `{`, `{"q7":{"prefetch":true},`, 1):    "unknown role",
		strings.Replace(string(text), `"q4":{"rows":1`, `"q4":{"rows":3`, 1): "want one of",
		`[1]`: "cannot unmarshal",
	} {
		if err := json.Unmarshal([]byte(bad), &read); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", bad, err, want)
		}
	}
	if got := p[Q4].String() + "; " + Default("")[Floats].String() + "; " + p[Tokens].String() + "; " + Role(99).String(); got != "1 row, no prefetch; 8 rows, prefetch; prefetch; Role(99)" {
		t.Error(got)
	}
}
