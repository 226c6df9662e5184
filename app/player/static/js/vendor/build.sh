#!/bin/sh
# Makes spessasynth.js again: the synthesizer of the player, from npm, in one file. Run it in this
# folder, with Node.js and npm; `sh build.sh check` only compares the file with its hash.
set -eu
cd "$(dirname "$0")"
if [ "${1-}" != check ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  npm install --prefix "$work" --no-audit --no-fund --ignore-scripts spessasynth_core@4.3.22 stb-vorbis@0.0.6 esbuild@0.28.2
  echo 'export { SoundBankLoader, SpessaSynthProcessor } from "spessasynth_core";' > "$work/entry.js"
  "$work/node_modules/.bin/esbuild" "$work/entry.js" --bundle --minify --format=esm --target=es2022 --legal-comments=none \
    --banner:js="/* spessasynth_core 4.3.22, stb-vorbis 0.0.6, Apache-2.0: see LICENSE and build.sh */" --outfile=spessasynth.js
  cp "$work/node_modules/spessasynth_core/LICENSE" LICENSE
  sha256sum spessasynth.js > spessasynth.js.sha256
fi
sha256sum --check spessasynth.js.sha256
