#!/usr/bin/env bash
# The images example: it learns from a folder of JPEG and PNG files, gives the same bits for one worker and two, and
# goes on after a kill from its last checkpoint.
# usage: images.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"
export TMPDIR=$work  # a killed run leaves its images there

result '90 images of 3 classes in .*, accuracy [01]\.[0-9]+'
awk '{ exit !($NF > 0.9) }' <<< "$line" || fail "'$line': expected an accuracy above 0.9"

same_weights

# A folder gives the same weights as the same images in a temporary folder.
"$program" --make colors > out.txt 2> err.txt || fail "--make: exit $?"
run --workers 1 --epochs 3 --logdir folder --root colors
[ "$(hash_of folder)" = "$(hash_of one)" ] || fail "--root: $(hash_of folder), expected $(hash_of one)"

# A broken image is named.
head -c 700 colors/train/red/0.jpg > short && mv short colors/train/red/0.jpg
if "$program" --quiet --root colors --workers 1 > out.txt 2> err.txt; then fail "a broken image was accepted"; fi
grep -q 'colors/train/red/0.jpg: JPEG: the file ends too early' err.txt || fail "the broken image is not named"

# As are the folders without images.
rm colors/valid/blue/*
if "$program" --quiet --root colors > out.txt 2> err.txt; then fail "an empty folder was accepted"; fi
grep -q 'has no image in blue' err.txt || fail "the empty folder is not named"
echo "images: $line"
