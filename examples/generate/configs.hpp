// The models that `generate` is compiled for, one line each: a config of the library (config/glm5.hpp), which
// is geometry, formats, caches and the number of ranks in one type. At run time the checkpoint's geometry and
// formats, and --tp and
// --caches, choose a line. A new model is a new line, and, where its geometry is new, a config struct.
//
// Each line is a kernel of its own for each target that the program is compiled for (targets.hpp), about ten
// seconds of compiler. Each list has a source file, so that they build side by side.
#pragma once

#include "monolayer/config/glm5.hpp"

namespace monolayer::examples {

template <class... Configs>
struct model_list {};

/// examples/generate_micro.cpp, examples/generate_micro_fp8.cpp
using micro_models = model_list<       //
    with_mxfp4_layer<micro_layer<1>>,  //
    with_mxfp4_layer<micro_layer<4>>,  //
    with_fp8_caches<with_mxfp4_layer<micro_layer<4>>>>;
using micro_fp8_models = model_list<  //
    with_fp8_layer<micro_layer<1>>,   //
    with_fp8_layer<micro_layer<4>>>;

/// examples/generate_tiny.cpp
using tiny_models = model_list<       //
    with_mxfp4_layer<tiny_layer<4>>,  //
    with_fp8_layer<tiny_layer<4>>>;

/// examples/generate_glm5.cpp: GLM-5's own size, in programs for a GPU alone; no simulator would come to an
/// end.
using glm5_models = model_list<  //
    glm5_layer<4>,               //
    glm5_layer<8>,               //
    with_fp8_layer<glm5_layer<8>>>;

}  // namespace monolayer::examples
