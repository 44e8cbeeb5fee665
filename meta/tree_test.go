package meta

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const smallTree = `{"class":"Net","params":[["scale",[],"float32"]],"children":[` +
	`["a",{"class":"Linear","params":[["weight",[2,3],"bfloat16"],["bias",[2],"float32"]]}],` +
	`["b",{"class":"Block","buffers":[["n",[],"int64",true],["t",[4],"float32",false]],` +
	`"children":[["c",{"class":"Linear","params":[["weight",[2,3],"bfloat16","a.weight"]]}]]}],` +
	`["d",{"same_as":"b"}],` +
	`["e",{"class":"Linear","params":[["weight",[2,3],"bfloat16","d.c.weight"]]}]]}`

func TestReadTree(t *testing.T) {
	root, err := ReadTree([]byte(smallTree))
	if err != nil {
		t.Fatal(err)
	}
	weight := root.Find("a").Param("weight")
	if root.Find("d.c") != root.Find("b.c") || root.Find("d.c").Param("weight").Resolve() != weight {
		t.Error("the alias or the tie leads elsewhere")
	}
	if root.Find("e").Param("weight").SameAs != weight {
		t.Error("a tie through an alias leads elsewhere")
	}
	if n := root.NumParameters(); n != 1+6+2 {
		t.Errorf("%d parameters", n)
	}
	if got := fmt.Sprint(root.Tied()); got != "[[a.weight b.c.weight d.c.weight e.weight]]" {
		t.Errorf("tied %s", got)
	}
	var names []string
	for _, e := range root.Entries() {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "scale a.weight a.bias b.c.weight d.c.weight e.weight b.n b.t d.n d.t" {
		t.Errorf("entries %s", got)
	}
	back, err := WriteTree(root)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(smallTree, `"d.c.weight"`, `"a.weight"`, 1)
	if string(back) != want {
		t.Errorf("%s\nwant %s", back, want)
	}
}

// TestReadTreeNulls: lists and a tie may be null.
func TestReadTreeNulls(t *testing.T) {
	_, err := ReadTree([]byte(`{"class": "A", "params": [["w", [2.0], "torch.float32", null]], "buffers": null, "children": null, "more": 1}`))
	if err != nil {
		t.Error(err)
	}
}

func TestReadTreeErrors(t *testing.T) {
	// Each alias stands for two of the one before: 2^40 modules in all.
	var doubling strings.Builder
	doubling.WriteString(`{"class":"A","children":[["m0",{"class":"B"}]`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `,["m%d",{"class":"C","children":[["x",{"same_as":"m%d"}],["y",{"same_as":"m%d"}]]}]`, i+1, i, i)
	}
	doubling.WriteString(`]}`)
	for _, c := range []struct{ tree, want string }{
		{``, "meta: tree: EOF"},
		{`{"class": "A"} x`, "meta: tree: text after the tree"},
		{`[]`, "meta: tree: got a list, want a module"},
		{`{}`, "meta: tree: the module has no class"},
		{`{"same_as": ""}`, "meta: tree: the root has same_as, want a module"},
		{`{"class": "A", "params": {}}`, "meta: tree: params: got an object, want a list"},
		{`{"class": "A", "params": [["w", [1]]]}`, "meta: tree: params[0]: want a list of 3 elements"},
		{`{"class": "A", "params": [[5, [1], "float32"]]}`, "meta: tree: got a number, want a name"},
		{`{"class": "A", "params": [["w", 1, "float32"]]}`, "meta: tree: w: got a number, want a shape"},
		{`{"class": "A", "params": [["w", [-1], "float32"]]}`, "meta: tree: w: shape[0]: want an integer"},
		{`{"class": "A", "params": [["w", [2147483647,2147483647,2147483647], "float32"]]}`, "meta: tree: w: the tree is too large"},
		{`{"class": "A", "params": [["w", [1], "float31"]]}`, `meta: tree: w: unknown dtype "float31"`},
		{`{"class": "A", "params": [["w", [1], "int8"], ["w", [1], "int8"]]}`, "meta: tree: w: the name is used twice"},
		{`{"class": "A", "params": [["w", [1], "int8", "w"]]}`, `meta: tree: w: same_as: got "w", want an earlier parameter`},
		{`{"class": "A", "params": [["w", [1], "int8"], ["v", [2], "int8", "w"]]}`, `meta: tree: v: same_as: "w" has another shape`},
		{`{"class": "A", "buffers": [["b", [1], "int8"]]}`, "meta: tree: buffers[0]: want a list of 4 elements"},
		{`{"class": "A", "buffers": [["b", [1], "int8", 1]]}`, "meta: tree: b: persistent: want true or false"},
		{`{"class": "A", "children": [["x.y", {"class": "B"}]]}`, `meta: tree: x.y: got "x.y", want a name without dots`},
		{`{"class": "A", "children": [["x", {"class": "B", "children": [["y", 3]]}]]}`, "meta: tree: x.y: got a number, want a module"},
		{`{"class": "A", "children": [["x", {"class": "B"}], ["x", {"class": "B"}]]}`, "meta: tree: x: the name is used twice"},
		{`{"class": "A", "children": [["x", {"class": "B", "children": [["y", {"same_as": "x"}]]}]]}`, `meta: tree: x.y: same_as: got "x", want an earlier module`},
		{`{"class": "A", "children": [["x", {"same_as": ""}]]}`, "meta: tree: x: same_as: want the path of a module"},
		{`{"class": "A", "children": [["x", {"same_as": "z.y"}]]}`, `meta: tree: x: same_as: got "z.y", want an earlier module`},
		{doubling.String(), "meta: tree: m19: the tree has too many modules"},
	} {
		if _, err := ReadTree([]byte(c.tree)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.100s:\n got  %v\n want %s", c.tree, err, c.want)
		}
	}
}

// TestWriteTreeOutside: a module tied to one outside of the tree is an error.
func TestWriteTreeOutside(t *testing.T) {
	root, err := ReadTree([]byte(smallTree))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"b", "e"} {
		if _, err := WriteTree(root.Find(path)); err == nil {
			t.Errorf("%s is written without what it is tied to", path)
		}
	}
	part := &Module{Class: "A", Children: []*Module{{Name: "x", SameAs: root.Find("a")}}}
	if _, err := WriteTree(part); err == nil {
		t.Error("an alias is written without its module")
	}
}

func TestCheckpointEntriesOfTransposedRows(t *testing.T) {
	m := &Module{Params: []*Param{
		{Name: "top", Shape: []int{2, 5}, Sources: []TensorSource{{Tensor: "both", From: RowRange{0, 2}}}},
		{Name: "low", Shape: []int{3, 5}, Sources: []TensorSource{{Tensor: "both", From: RowRange{2, 5}}}},
		{Name: "turned", Shape: []int{3, 5}, Sources: []TensorSource{{Tensor: "turned", Transposed: true}}},
	}}
	want := []CheckpointEntry{{Name: "both", Shape: []int{5, 5}}, {Name: "turned", Shape: []int{5, 3}}}
	if got := m.CheckpointEntries(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzReadTree(f *testing.F) {
	f.Add([]byte(smallTree))
	f.Add([]byte(`{"class":"S","children":[["0",{"class":"L"}],["1",{"same_as":"0"}]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := ReadTree(data)
		if err != nil {
			return
		}
		_, _, _ = root.Entries(), root.Tied(), root.CheckpointEntries()
		first, err := WriteTree(root)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadTree(first)
		if err != nil {
			t.Fatalf("%v: %s", err, first)
		}
		second, err := WriteTree(again)
		if err != nil || !slices.Equal(first, second) {
			t.Fatalf("%v: %s is written as %s", err, first, second)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, name := range Architectures() {
		f.Add([]byte(`{"model_type": "` + name + `", "num_hidden_layers": 2, "n_layer": 1}`))
	}
	f.Add([]byte(`{"model_type": "llama", "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}`))
	f.Add([]byte(`{"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 4.0}, "head_dim": 8}`))
	f.Add([]byte(`{"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}}`))
	f.Add([]byte(`{"eos_token_id": [1, 2], "temperature": 0.5, "top_k": 50}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ReadGenerationConfig(data)
		cfg, err := ReadConfig(data)
		if err != nil {
			return
		}
		m, err := New(cfg, nil)
		if err != nil {
			return
		}
		if n := m.Root.NumParameters(); n <= 0 || n > maxElements {
			t.Fatalf("%d parameters", n)
		}
		for path, node := range m.Root.Walk() {
			a, ok := node.Spec.(*AttentionSpec)
			if !ok || a.Rope == nil {
				continue
			}
			for _, length := range []int{1, 1 << 20} {
				if inv, scale := a.Rope.Frequencies(length); len(inv) != a.Rope.Dim/2 || !(scale > 0) {
					t.Fatalf("%s: %d frequencies, scale %v: %+v", path, len(inv), scale, a.Rope)
				}
			}
			break
		}
	})
}
