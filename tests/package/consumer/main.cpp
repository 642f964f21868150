#include <monolayer/core/macros.hpp>
#ifdef WITH_SIM
#include <boost/context/fiber.hpp>
#endif

static_assert(__cplusplus >= 202002L);
MONOLAYER_HOST_DEVICE constexpr int twice(int x) { return 2 * x; }

int main() {
  int seen = twice(3);
#ifdef WITH_SIM
  boost::context::fiber fiber([&](boost::context::fiber&& back) {
    seen = twice(3);
    return std::move(back);
  });
  seen = 0;
  fiber = std::move(fiber).resume();
#endif
  return seen == 6 ? 0 : 1;
}
