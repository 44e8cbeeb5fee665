package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestGroupedNamesHaveTheIDsOfAMap: names that are entered and looked up in groups have the ids that a map has, also names that are given
// twice, removed or unknown, in any number.
func TestGroupedNamesHaveTheIDsOfAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, group - 1, group, group + 1, 5000} {
		table, want := newNameList(0, 0), map[string]int32{}
		for id := range int32(n) {
			name := fmt.Sprintf("%x", r.IntN(n))
			table.add([]byte(name), id)
			want[name] = id
		}
		next := int32(0)
		table.index(func(id int32, entry int) {
			if id != next || table.entries[entry].id < id {
				t.Fatalf("%d names: entry %d for id %d, want id %d", n, entry, id, next)
			}
			next++
		})
		for i := range n / 2 { // the table grows beyond its first size
			name := fmt.Sprintf("more %d", i)
			table.set([]byte(name), int32(n+i))
			want[name] = int32(n + i)
		}
		table.remove("1")
		delete(want, "1")
		if table.live != len(want) {
			t.Errorf("%d names: got %d that are different, want %d", n, table.live, len(want))
		}
		var list []lookup
		for i := range n + 3 {
			list = append(list, lookup{name: fmt.Appendf(nil, "%x", i)}, lookup{name: fmt.Appendf(nil, "more %d", i)})
		}
		table.getAll(list)
		for _, l := range list {
			id, ok := want[string(l.name)]
			if !ok {
				id = -1
			}
			if one, _ := table.get(string(l.name)); l.id != id || one != id {
				t.Errorf("%d names: %q has id %d in a group and %d alone, want %d", n, l.name, l.id, one, id)
			}
		}
	}
}

// TestFirstBadMerge: the error names the first wrong merge, whether its tokens are looked up
// together with later ones or not.
func TestFirstBadMerge(t *testing.T) {
	const good = `["a","b"],`
	for _, before := range []int{0, 1, group/2 - 1, group / 2, group/2 + 1, 3 * group} {
		for _, after := range []string{``, good + `["a"],`, strings.Repeat(good, group) + `["c","a"],`} {
			_, err := Parse([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[` + strings.Repeat(good, before) + `["b","x"],` + after + `["a","b"]]}}`))
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`[%d]: byte`, before)) || !strings.Contains(err.Error(), `"x"`) {
				t.Errorf("%d merges before: got error %v, want one about merge %d", before, err, before)
			}
		}
	}
}
