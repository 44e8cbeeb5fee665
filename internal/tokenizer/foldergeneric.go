package tokenizer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
)

// A generic tokenizer follows the settings in a SentencePiece model, as SentencePiece itself does
// and transformers since version 5.24.

// genericParts returns the parts around a vocabulary of a generic tokenizer.
func (f *folder) genericParts(sp *spModel) parts {
	type object = map[string]any
	replace := func(kind, pattern, content string) object {
		return object{"type": "Replace", "pattern": object{kind: pattern}, "content": content}
	}
	legacy := f.flag("legacy", true)
	var norms, pres []object
	if len(sp.charsmap) > 0 {
		norms = append(norms, object{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(sp.charsmap)})
	}
	if sp.removeSpaces {
		norms = append(norms, replace("Regex", `\A +| +\z`, ""), replace("Regex", " {2,}", " "))
	}
	if sp.escapeSpaces {
		norms = append(norms, replace("String", " ", "▁"))
	}
	decoders := []object{replace("String", "▁", " ")}
	if sp.byteFallback {
		decoders = append(decoders, object{"type": "ByteFallback"})
	}
	if sp.dummyPrefix {
		scheme := "first"
		if legacy { // Metaspace adds no space before a text that begins with one
			scheme = "always"
			norms = append(norms, replace("Regex", `\A▁`, "▁▁"))
		}
		pres = append(pres, object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false})
		decoders = append(decoders, object{"type": "Fuse"}, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	} else if sp.byteFallback {
		decoders = append(decoders, object{"type": "Fuse"})
	}
	c := parts{decoder: sequenceOf("decoders", decoders), defaults: map[string]string{}, words: f.userDefined(sp)}
	if len(norms) > 0 {
		c.normalizer = sequenceOf("normalizers", norms)
	}
	if len(pres) > 0 {
		c.pre = sequenceOf("pretokenizers", pres)
	}
	for i, role := range roles[:len(sp.ends)] {
		if sp.ids[i] >= 0 {
			c.defaults[role] = sp.ends[i]
		}
	}
	return c
}

// sequenceOf returns the JSON of a sequence of parts, as in tokenizer.json.
func sequenceOf(name string, list any) string {
	text, _ := json.Marshal(map[string]any{"type": "Sequence", name: list})
	return string(text)
}

// userDefined returns the pieces that are tokens wherever they stand in a text, or nil if there are none.
func (f *folder) userDefined(sp *spModel) *trie {
	renamed := map[int32]string{}
	if !sp.unigram {
		for _, a := range f.listed {
			renamed[a.ID] = a.Content
		}
	}
	var words *trie
	for i, p := range sp.pieces {
		if p.kind != pieceUserDefined || p.text == "" {
			continue
		}
		if words == nil {
			words = &trie{}
		}
		words.add(cmp.Or(renamed[int32(i)], p.text), i)
	}
	return words
}

// genericBPE completes b. Only normal pieces are merged, those with the highest scores first.
func (f *folder) genericBPE(sp *spModel, b *bpe) (model, error) {
	b.byteFallback = sp.byteFallback
	b.rename(f.listed)
	b.unk = b.id(sp.ends[2])
	list, err := b.pieceMerges(func(id int32) bool { return sp.pieces[id].kind == pieceNormal })
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(x, y merge) int { return cmp.Compare(sp.pieces[y.fused].score, sp.pieces[x.fused].score) })
	b.ignoreMerges = slices.ContainsFunc(sp.pieces, func(p spPiece) bool { return p.kind == pieceUserDefined })
	b.setMerges(list)
	return b, nil
}

// rename gives tokens of the vocabulary the names that the settings have for their ids, such as those of
// control tokens that were reserved. A name that another token keeps stays with it; two tokens may swap
// their names.
func (v *vocab) rename(listed []AddedToken) {
	inList := map[int32]bool{}
	for _, a := range listed {
		inList[a.ID] = true
	}
	var renamed []AddedToken
	for _, a := range listed {
		old := v.name(a.ID)
		if id, known := v.names.get(a.Content); known && !inList[id] || old == "" || old == a.Content {
			continue
		}
		renamed = append(renamed, a)
	}
	for _, a := range renamed {
		v.names.remove(v.name(a.ID))
	}
	for _, a := range renamed {
		v.set([]byte(a.Content), a.ID)
	}
}
