// Transforms of images, targets and batches.
#include "lockstep/config/value.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/transform/color.h"
#include "lockstep/transform/crop.h"
#include "lockstep/transform/geometry.h"
#include "lockstep/transform/mix.h"
#include "lockstep/transform/noise.h"
#include "lockstep/transform/one_hot.h"
#include "lockstep/transform/pad.h"
#include "lockstep/transform/trivial_augment.h"

namespace lockstep::config {

template <>
struct EnumNames<data::Interpolation> {
  static constexpr std::pair<data::Interpolation, const char*> names[] = {
      {data::Interpolation::kNearest, "nearest"},
      {data::Interpolation::kBilinear, "bilinear"},
      {data::Interpolation::kBicubic, "bicubic"}};
};

template <>
struct EnumNames<data::PaddingMode> {
  static constexpr std::pair<data::PaddingMode, const char*> names[] = {
      {data::PaddingMode::kConstant, "constant"},
      {data::PaddingMode::kEdge, "edge"},
      {data::PaddingMode::kReflect, "reflect"},
      {data::PaddingMode::kSymmetric, "symmetric"}};
};

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

constexpr const char* kSizeHelp = "[height, width], or the length of a square";
constexpr const char* kFillHelp = "of parts without image: one number, or one per channel";

void add_crops(Targets& targets) {
  using R = data::ResizeOptions;
  targets.transforms.add<R>(
      "Resize", "Images of another size.",
      {config::required("size", &R::size, "[height, width], or the length of the shorter side"),
       {"interpolation", &R::interpolation, "how pixels are mixed"},
       {"antialias", &R::antialias, "average all pixels if the image gets smaller"},
       {"max_size", &R::max_size, "of the longer side"}},
      [](const R& o) { return data::Resize(o); });
  using C = data::CenterCropOptions;
  targets.transforms.add<C>("CenterCrop", "The middle of an image.",
                            {config::required("size", &C::size, kSizeHelp)},
                            [](const C& o) { return data::CenterCrop(o); });
  using P = data::RandomCropOptions;
  targets.transforms.add<P>(
      "RandomCrop", "A part of an image at a random place.",
      {config::required("size", &P::size, kSizeHelp),
       {"padding", &P::padding, "in pixels around the image before; as in Pad"},
       {"fill", &P::fill, "of the padding: one number, or one per channel"},
       {"padding_mode", &P::padding_mode, "what the padding shows"}},
      [](const P& o) { return data::RandomCrop(o); });
  using Z = data::RandomResizedCropOptions;
  targets.transforms.add<Z>(
      "RandomResizedCrop", "A part of random size, shape and place, resized.",
      {config::required("size", &Z::size, kSizeHelp),
       {"scale", &Z::scale, "area of the part, from lowest to highest"},
       {"ratio", &Z::ratio, "width divided by height of the part, from lowest to highest"},
       {"interpolation", &Z::interpolation, "how pixels are mixed"},
       {"antialias", &Z::antialias, "average all pixels if the part gets smaller"}},
      [](const Z& o) { return data::RandomResizedCrop(o); });
}

void add_moves(Targets& targets) {
  using F = data::FlipOptions;
  targets.transforms.add<F>("RandomHorizontalFlip", "Exchanges left and right, or not.",
                            {{"probability", &F::probability, "of a flip"}},
                            [](const F& o) { return data::RandomHorizontalFlip(o); });
  targets.transforms.add<F>("RandomVerticalFlip", "Exchanges top and bottom, or not.",
                            {{"probability", &F::probability, "of a flip"}},
                            [](const F& o) { return data::RandomVerticalFlip(o); });
  using R = data::RandomRotationOptions;
  targets.transforms.add<R>(
      "RandomRotation", "Turns images by a random angle.",
      {config::required("degrees", &R::degrees, "[lowest, highest], or d for -d to d"),
       {"interpolation", &R::interpolation, "nearest or bilinear"},
       {"expand", &R::expand, "make room for the whole image"},
       {"fill", &R::fill, kFillHelp}},
      [](const R& o) { return data::RandomRotation(o); });
  using A = data::RandomAffineOptions;
  targets.transforms.add<A>(
      "RandomAffine", "Turns, moves, scales and shears images.",
      {config::required("degrees", &A::degrees, "[lowest, highest], or d for -d to d"),
       {"translate", &A::translate, "most along x and y, as parts of width and height"},
       {"scale", &A::scale, "from lowest to highest"},
       {"shear", &A::shear, "degrees along x: d or [lowest, highest]; two more along y"},
       {"interpolation", &A::interpolation, "nearest or bilinear"},
       {"fill", &A::fill, kFillHelp}},
      [](const A& o) { return data::RandomAffine(o); });
  using P = data::ImagePadOptions;
  targets.transforms.add<P>(
      "Pad", "Extends images at their edges.",
      {config::required("padding", &P::padding,
                        "all, [left and right, top and bottom], or [left, top, right, bottom]"),
       {"fill", &P::fill, kFillHelp},
       {"padding_mode", &P::padding_mode, "what the padding shows"}},
      [](const P& o) { return data::Pad(o); });
  using T = data::TrivialAugmentOptions;
  targets.transforms.add<T>("TrivialAugmentWide", "One random change of random strength per image.",
                            {{"bins", &T::bins, "how many strengths there are"},
                             {"interpolation", &T::interpolation, "nearest or bilinear"},
                             {"fill", &T::fill, kFillHelp}},
                            [](const T& o) { return data::TrivialAugmentWide(o); });
}

void add_colors(Targets& targets) {
  using J = data::ColorJitterOptions;
  targets.transforms.add<J>(
      "ColorJitter", "Random brightness, contrast, saturation and hue, in a random order.",
      {{"brightness", &J::brightness, "factor: [lowest, highest], or x for 1 - x to 1 + x"},
       {"contrast", &J::contrast, "the same"},
       {"saturation", &J::saturation, "the same"},
       {"hue", &J::hue, "part of the circle: [lowest, highest], or x for -x to x"}},
      [](const J& o) { return data::ColorJitter(o); });
  using G = data::GrayscaleOptions;
  targets.transforms.add<G>("Grayscale", "Images without colours.",
                            {{"channels", &G::channels, "1, or 3 that are the same"}},
                            [](const G& o) { return data::Grayscale(o); });
  using R = data::RandomGrayscaleOptions;
  targets.transforms.add<R>("RandomGrayscale", "Removes the colours, or not.",
                            {{"probability", &R::probability, "of grey"}},
                            [](const R& o) { return data::RandomGrayscale(o); });
  using B = data::GaussianBlurOptions;
  targets.transforms.add<B>("GaussianBlur", "A blur of random strength.",
                            {{"kernel_size", &B::kernel_size, "in pixels, odd"},
                             {"sigma", &B::sigma, "in pixels: one, or [lowest, highest]"}},
                            [](const B& o) { return data::GaussianBlur(o); });
  using N = data::GaussianNoiseOptions;
  targets.transforms.add<N>(
      "GaussianNoise",
      "x + std * normal noise; of a data set, or for augment of a SelfSupervisedRunner.",
      {{"std", &N::std, "of the noise"}}, [](const N& o) { return data::GaussianNoise(o); });
  using E = data::RandomErasingOptions;
  targets.transforms.add<E>(
      "RandomErasing", "Erases a random rectangle of floats, or nothing.",
      {{"probability", &E::probability, "of a rectangle"},
       {"scale", &E::scale, "its area as a part of the image, from lowest to highest"},
       {"ratio", &E::ratio, "its height divided by its width, from lowest to highest"},
       {"value", &E::value, "one number, or one per channel"},
       {"noise", &E::noise, "normal noise instead of the value"}},
      [](const E& o) { return data::RandomErasing(o); });
}

void add_batch_transforms(Targets& targets) {
  using M = data::MixupOptions;
  targets.batch_transforms.add<M>(
      "Mixup", "Mixes each sample and its target with another one of the batch.",
      {{"alpha", &M::alpha, "the larger, the more is mixed"},
       {"classes", &M::classes, "how many; needed if targets are classes"},
       {"per_sample", &M::per_sample, "each sample is mixed by another part"},
       {"add", &M::add, "mixed samples are added to the batch and do not replace it"}},
      [](const M& o) { return data::Mixup(o); });
  using C = data::CutMixOptions;
  targets.batch_transforms.add<C>(
      "CutMix", "Replaces a rectangle of each image by that of another one of the batch.",
      {{"alpha", &C::alpha, "the larger, the more is mixed"},
       {"classes", &C::classes, "how many; needed if targets are classes"}},
      [](const C& o) { return data::CutMix(o); });
  using L = data::LabelSmoothingOptions;
  targets.batch_transforms.add<L>(
      "LabelSmoothing", "Classes become probabilities; the classes are kept as labels.",
      {{"smoothing", &L::smoothing, "the part of a target that is spread over all classes"},
       config::required("classes", &L::classes, "how many")},
      [](const L& o) { return data::LabelSmoothing(o); });
}

}  // namespace

void add_image_transforms(Targets& targets) {
  add_crops(targets);
  add_moves(targets);
  add_colors(targets);
  using O = data::OneHotOptions;
  targets.transforms.add<O>("OneHot", "Classes as rows of zeros with a one.",
                            {config::required("classes", &O::classes, "how many")},
                            [](const O& o) { return data::OneHot(o); });
  add_batch_transforms(targets);
}

}  // namespace lockstep::recipe
