package backend

import "github.com/heftai/heft/internal/tensor"

// Blocked is implemented by a Backend that runs attention to blocks of positions, which an indexer of Heads heads
// chooses: a row that sees more than Count blocks attends to Count of them with each head. Neighbouring query heads,
// equally many, share the choice of a head of the indexer. The result of a row depends on its own position and visible
// keys alone.
type Blocked interface {
	// ChooseBlocks sets row i of chosen, [n, Heads·Count], to the blocks that row i of q attends to, for each head in
	// ascending order, as bits of uint32. Rows that see at most Count blocks do not change. A block is Size
	// positions. Its score for a head is the largest product of the head's query with the key of a position in it
	// that the row sees, summed in ascending order of the channels. The Local blocks that end with the row's own are
	// chosen whatever they score. Of equal scores the lower block is chosen.
	// q is [n, Heads·Dim], and keys.K has one head of Dim channels.
	ChooseBlocks(chosen, q tensor.Tensor, keys KV, spans []Span, b BlockArgs)
	// AttentionBlocks is Attention where each row sees the blocks that ChooseBlocks set, or all earlier positions if
	// those are at most Count blocks, or b.Most() positions with Tail. a has a multiple of b.Heads query heads, and no window,
	// chunk, softcap, slopes or sinks.
	AttentionBlocks(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs, b BlockArgs)
}

// BlockedGradients has the reverse of AttentionBlocks. The choice of blocks has none.
type BlockedGradients interface {
	Averaged
	Indexed
	// AttentionBlocksGrad is AttentionGrad where each row sees the blocks that AttentionBlocks saw. Positions that
	// AttentionChosen saw are blocks of one. With entries it is the reverse of AttentionEntries.
	AttentionBlocksGrad(dq tensor.Tensor, dkv KV, dy, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs, b ChosenBlocks)
}

// ChosenBlocks are blocks that ChooseBlocks chose, or entries that ChooseEntries did.
type ChosenBlocks struct {
	BlockArgs
	Entries EntryArgs // with a Rate for entries, whose Chosen may be absent; BlockArgs are not used then
	Chosen  tensor.Tensor
	Sinks   tensor.Tensor // the gradient of the sinks, or absent
}

// BlockArgs are the parameters of an indexer of blocks.
type BlockArgs struct {
	Heads, Dim int
	Size       int // positions of a block
	Count      int // of blocks to choose
	Local      int // of them, those that end with the row's own
	// Tail says that a row sees the positions behind its last whole block besides, and chooses among whole blocks.
	Tail bool
}

// Most is the most positions that a row sees.
func (a *BlockArgs) Most() int {
	if a.Tail {
		return (a.Count+1)*a.Size - 1
	}
	return a.Count * a.Size
}

// Averaged is implemented by a Backend that runs attention to blocks which are chosen by the averages of their keys, as
// entries of [Compressed].
type Averaged interface {
	Blocked
	EntryChooser
	// AverageKeys sets row i of dst to the average of the keys of the size positions that end with the row's, if its
	// position is the last of a block, and to 0 otherwise. keys.K has one head, as wide as dst.
	AverageKeys(dst tensor.Tensor, keys KV, spans []Span, size int)
}
