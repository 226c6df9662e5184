"""A pointer into the sequence so far, whose proposals are mixed with a decoder's predictions.

A decoder with a small or constant state forgets details of a sequence; the sequence itself does
not. A pointer matches the end of the sequence with earlier places, its *sources*, and proposes the
tokens that followed them. Sequences consist of units (bars of music, lines of text): each distance
in units has one source, the place with the longest match. With the sum S of exp(g) over all
sources, and S(x) over those that propose x, the mixture is

    p(x) = (softmax(logits)(x) + S(x) / sqrt(S)) / (1 + sqrt(S))

The log-odds g of a source are a sum of entries of small tables: by the length of the match, by the
distance and its alignment to phrases of 2, 4, 8 and 16 units, by how well sources at that distance
have predicted lately, by whether the sequence itself has named the unit of the source, and by the
family of the last token. `relpe-train fit-pointer` fits the
tables to held-out sequences; the weights of the decoder stay as they are. The root, because sources
are not independent: several often propose a token for the same reason. In generation sqrt(S) is
bounded.

Sources: Merity et al. (2017), section 2.2: mixture of softmax and pointer; Grave, Joulin and
Usunier (2017), section 3: a cache that needs no training of the model; Akyürek et al. (2024),
section 6: matches of n-grams as attention.
"""
